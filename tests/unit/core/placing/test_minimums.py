from hypothesis import given, settings
from hypothesis import strategies as st

from core.groups import GroupSpec, SubGroups
from core.model import GroupKey, GroupKind, Pod, PodUid, Requirement
from core.placing.minimums import Division, Tally, minimum_of

KEY = GroupKey(GroupKind.VOLCANO, "ml", "g")


class Counting(dict[str, str]):
    """Labels that count how often one of them is read."""

    reads = 0

    def get(self, key, default=None):
        self.reads += 1
        return super().get(key, default)


def pod(labels):
    return Pod(uid=PodUid("p"), namespace="ml", name="p", labels=labels)


requirements = st.builds(
    lambda key, operator, values: Requirement(
        key=key, operator=operator, values=tuple(values) if operator.endswith("In") else ()
    ),
    st.sampled_from("ab"),
    st.sampled_from(("In", "In", "NotIn", "Exists")),
    st.sets(st.sampled_from("123"), min_size=1),
)
policies = st.lists(
    st.tuples(st.none() | st.lists(requirements, max_size=2), st.sampled_from(((), ("a",), ("b",)))), max_size=5
)


def meets(labels, one):
    value = labels.get(one.key)
    return {"In": value in one.values, "Exists": value is not None, "NotIn": value not in one.values}[one.operator]


@settings(max_examples=300, deadline=None)
@given(policies, st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from("123")), max_size=4))
def test_a_member_is_of_the_first_policy_that_selects_it_and_has_its_labels(drawn, every):
    entries = tuple(
        SubGroups(name=f"s{at}", selector=None if asked is None else tuple(asked), keys=keys)
        for at, (asked, keys) in enumerate(drawn)
    )
    division = Division(GroupSpec(key=KEY, sub_groups=entries))
    for labels in every:
        path, policy = division.of(pod(labels))
        expected = next(
            (
                one
                for one in entries
                if all(key in labels for key in one.keys) and all(meets(labels, each) for each in one.selector or ())
            ),
            None,
        )
        assert policy is expected
        assert path == (
            () if policy is None else ("/".join((f"subgroup {policy.name}", *map(labels.get, policy.keys))),)
        )


def test_a_member_is_compared_with_the_policies_of_its_labels_and_the_tree_has_what_is_needed():
    entries = tuple(
        SubGroups(name=f"s{at}", selector=(Requirement(key="role", operator="In", values=(f"r{at}",)),), least=at % 2)
        for at in range(500)
    )
    spec = GroupSpec(key=KEY, sub_groups=entries)
    division, labels = Division(spec), Counting(role="r400", app="x")
    assert division.of(pod(labels)) == (("subgroup s400",), entries[400])
    assert labels.reads <= 2
    assert len(minimum_of(spec, division).parts) == 251


def test_of_policies_with_a_label_in_common_each_is_found_by_its_own():
    entries = tuple(
        SubGroups(
            name=f"s{at}",
            selector=tuple(
                Requirement(key=key, operator="In", values=(of,)) for key, of in (("app", "x"), ("n", str(at)))
            ),
        )
        for at in range(500)
    )
    division, labels = Division(GroupSpec(key=KEY, sub_groups=entries)), Counting(app="x", n="400")
    assert division.of(pod(labels))[1] is entries[400]
    assert labels.reads <= 2


def test_a_group_whose_tasks_and_policies_all_lack_members_names_three():
    entries = tuple(SubGroups(name=f"s{at}", least=1) for at in range(5))
    spec = GroupSpec(key=KEY, min_member=9, min_task_member={f"t{at}": 1 for at in range(9)}, sub_groups=entries)
    tally = Tally(minimum_of(spec, Division(spec)), {})
    tasks = ["0 of 1 of task t0", "0 of 1 of task t1", "0 of 1 of task t2", "6 more"]
    assert tally.short() == [*tasks, "0 of 1 subgroups of s0", "0 of 1 subgroups of s1", "3 more"]
