"""What is guaranteed to queues is kept for them, whatever comes and goes, and nothing more than that is."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from tests.support.worlds.world import NUMBER, World, node, pod

GROUP = "scheduling.k8s.io/group-name"
CARDS = 8
# top (1, guaranteed) with a and b below it, and c beside
least = st.integers(0, 4)
steps = st.lists(st.tuples(st.sampled_from("abcx"), st.booleans()), max_size=25)


def kept(held, limits):
    """How much is kept for nobody but a, b, top and c: along the tree, by hand."""
    unused = {name: max(limits[name] - held[name], 0) for name in "abc"}
    below = max(limits["top"], limits["a"] + limits["b"]) - held["a"] - held["b"]
    return unused | {"top": max(below, unused["a"] + unused["b"], 0)}


def left(name, held, limits):
    """How much a pod of queue *name*, "x" of none, may take."""
    unused, free = kept(held, limits), CARDS - sum(held.values())
    if name == "x":
        return free - unused["top"] - unused["c"]
    if name == "c":
        return free - unused["top"]
    other = "b" if name == "a" else "a"
    return max(free - unused["c"], unused["top"]) - unused[other]


@settings(max_examples=100, deadline=None)
@example((0, 0, 0, 4), [("a", True)] * 6)
@example((0, 3, 0, 0), [("b", True)] * 8)
@example((0, 0, 0, 0), [*[("a", True)] * 9, ("a", False)])
@given(st.tuples(least, least, least, least).filter(lambda one: max(one[0], one[1] + one[2]) + one[3] <= CARDS), steps)
def test_nobody_takes_what_is_guaranteed_to_others_and_nobody_waits_for_less(amounts, drawn):
    limits = dict(zip(("top", "a", "b", "c"), amounts, strict=True))
    above = {"a": "top", "b": "top"}
    queues = [
        QueueSpec(name=name, parent=above.get(name, ""), guarantee={NUMBER: amount} if amount else {})
        for name, amount in limits.items()
    ]
    world = World(node("n0", cards=CARDS, slots=1))
    groups = [
        GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", name), uid=f"u-{name}", resource_version="1", queue=name)
        for name in "abc"
    ]
    world.groups_are(*groups, queues=queues)
    placed: dict[str, list[str]] = {name: [] for name in "abcx"}
    waiting: dict[str, list[str]] = {name: [] for name in "abcx"}
    for at, (name, comes) in enumerate(drawn):
        if comes:
            new = f"{name}{at}"
            world.adds(pod(new, annotations={} if name == "x" else {GROUP: name}))
            waiting[name].append(new)
        elif placed[name]:
            world.gone(placed[name].pop())
        world.now_s += 0.1  # what becomes free is handled together with what becomes free soon after it
        bound = world.placed()
        for one in "abcx":
            placed[one] += [new for new in waiting[one] if new in bound]
            waiting[one] = [new for new in waiting[one] if new not in bound]
        held = {one: len(names) for one, names in placed.items()}
        unused = kept(held, limits)
        assert CARDS - sum(held.values()) >= unused["top"] + unused["c"]
        for one in "abcx":
            assert not waiting[one] or left(one, held, limits) <= 0
