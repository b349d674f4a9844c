"""Workloads: the rules of pods on their templates, said where people type and denied only where nothing could help."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from core.admission.rulebook import rulebook
from core.admission.templates import judge_workload
from core.catalog import standard_catalog
from core.errors import InvalidRequestError
from core.inventory import Stock
from core.settings import AdmissionSettings, NeverFits, Settings, Tables
from core.wire.templates import decode_workload

NUMBER = "volcano.sh/vgpu-number"
MODE = "volcano.sh/vgpu-mode"


def template(limits=None, annotations=None, **spec):
    container = {"name": "main", "image": "i", "resources": {"limits": limits or {NUMBER: "1"}}}
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container], **spec}}


def deployment(found, **meta):
    return {"metadata": {"name": "w", **meta}, "spec": {"replicas": 2, "selector": {}, "template": found}}


PLACES: dict[str, Callable[[Any], Any]] = {
    "spec.template": deployment,
    "spec.jobTemplate.spec.template": lambda t: {
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": t}}}
    },
    "spec.tasks[1].template": lambda t: {
        "spec": {"minAvailable": 1, "tasks": [{"name": "a", "template": {"spec": {}}}, {"name": "b", "template": t}]}
    },
}


def judge(new, old=None, **settings):
    book = rulebook(Settings(**settings), Tables(), standard_catalog())
    text = json.dumps({"request": {"object": new, "oldObject": old}}).encode()
    return judge_workload(decode_workload(text), "n", book)


def told(verdict):
    return [str(one) for one in verdict.warnings]


@pytest.mark.parametrize("place", PLACES)
def test_what_no_mending_could_save_is_denied_with_its_place(place):
    verdict = judge(PLACES[place](template({NUMBER: "1.5"})))
    assert verdict.codes == ("CS101",)
    assert verdict.message.startswith(f'CS101 {place}: container "main": limit {NUMBER}: found ')


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheduler", [{}, {"schedulerName": "default-scheduler"}, {"schedulerName": "cardshare"}])
def test_a_template_is_judged_as_a_pod_that_gets_our_scheduler(place, scheduler):
    verdict = judge(PLACES[place](template({NUMBER: "1", "nvidia.com/gpu": "1"}, **scheduler)))
    assert verdict.codes == ("CS201",)
    assert judge(PLACES[place](template({"nvidia.com/gpu": "1"}))).allowed


@pytest.mark.parametrize("place", PLACES)
def test_what_is_mistyped_or_has_no_effect_is_told_with_its_place(place):
    limits = {NUMBER: "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-memory-percentage": "50"}
    verdict = judge(PLACES[place](template(limits, {"volcano.sh/vgpu-mod": "mig"})))
    assert verdict.allowed
    assert [text.partition(f" {place}: ")[::2] for text in map(str, verdict.warnings)] == [
        ("CS115", "annotation volcano.sh/vgpu-mod: this key is unknown; did you mean volcano.sh/vgpu-mode?"),
        (
            "CS116",
            "container \"main\": limit volcano.sh/vgpu-memory: found '3000'; it has no effect, because "
            "volcano.sh/vgpu-memory-percentage 50 overrides it: leave one of the two out",
        ),
    ]


@pytest.mark.parametrize("place", PLACES)
def test_what_will_be_mended_is_told_and_nothing_is_changed(place):
    verdict = judge(PLACES[place](template(annotations={MODE: " MIG"})))
    assert verdict.allowed
    assert told(verdict) == [f"CS104 {place}: annotation {MODE}: ' MIG' was read as 'mig'"]
    assert verdict.edits == ()


def test_a_template_without_fault_is_not_spoken_of():
    verdict = judge(deployment(template()))
    assert (verdict.allowed, verdict.warnings) == (True, ())


def test_a_template_that_names_its_node_or_is_privileged_is_denied():
    assert judge(deployment(template(nodeName="a"))).codes == ("CS302",)
    assert judge(deployment(template({NUMBER: "1", "volcano.sh/gpu-memory": "5"}))).codes == ("CS201",)


def test_what_the_operator_may_still_change_is_only_told():
    verdict = judge(deployment(template()), dialects=frozenset())
    assert verdict.allowed
    assert told(verdict)[0].startswith("CS202 spec.template: resources: ")
    assert told(verdict)[0].endswith("pods of this template will be denied")


def test_an_unchanged_template_is_let_through_whatever_it_says():
    wrong = template({NUMBER: "1.5"})
    old = deployment(wrong)
    assert judge({**old, "spec": {**old["spec"], "replicas": 9}}, old).codes == ()


def test_of_a_changed_template_only_what_is_new_is_denied():
    old = deployment(template({NUMBER: "1.5"}))
    new = deployment(template({NUMBER: "1.5"}, {MODE: "mps"}))
    verdict = judge(new, old)
    assert verdict.allowed
    assert told(verdict)[0].startswith("CS101 spec.template")
    assert judge(deployment(template({NUMBER: "1.5"}, {MODE: "x"})), old).codes[0] == "CS104"


def test_a_workload_that_is_deleted_or_made_by_a_controller_is_let_through():
    wrong = template({NUMBER: "1.5"})
    assert judge(deployment(wrong, deletionTimestamp="2026-01-01T00:00:00Z")).allowed
    assert judge(deployment(wrong, ownerReferences=[{"kind": "Deployment", "name": "d", "controller": True}])).allowed
    assert not judge(deployment(wrong, ownerReferences=[{"kind": "Team", "name": "d"}])).allowed


def test_what_can_never_fit_is_told_of_templates_also_where_pods_are_denied():
    for policy in (NeverFits.WARN, NeverFits.DENY):
        settings = Settings(admission=AdmissionSettings(never_fits={"*": policy}))
        book = rulebook(settings, Tables(), standard_catalog()).with_stock(Stock({}))
        text = json.dumps({"request": {"object": deployment(template())}}).encode()
        verdict = judge_workload(decode_workload(text), "n", book)
        assert verdict.allowed
        assert verdict.codes == ("CS405",)


def test_more_devices_than_kubelet_can_list_are_warned_of_unless_that_is_allowed():
    listed = frozenset({NUMBER, "volcano.sh/vgpu-memory"})
    large = {NUMBER: "1", "volcano.sh/vgpu-memory": "23k"}

    def codes(limits, allow=frozenset(), listed=listed):
        settings = Settings(admission=AdmissionSettings(allow={"*": allow}))
        book = rulebook(settings, Tables(), standard_catalog()).with_stock(Stock({}, listed))
        text = json.dumps({"request": {"object": deployment(template(limits))}}).encode()
        return judge_workload(decode_workload(text), "n", book).codes

    assert codes(large) == ("CS405", "CS322")
    assert codes({**large, "volcano.sh/vgpu-memory": "22999"}) == ("CS405",)
    assert codes(large, frozenset({"CS322"})) == ("CS405",)
    assert codes(large, listed=frozenset()) == ("CS405",)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"request": {"object": {"spec": {"template": 5}}}}'])
def test_what_is_no_workload_is_a_typed_error(text):
    with pytest.raises(InvalidRequestError):
        decode_workload(text)


@pytest.mark.parametrize("found", [{}, {"spec": None}, {"spec": {"jobTemplate": {}}}, {"spec": {"tasks": [{}]}}])
def test_a_workload_without_a_template_has_nothing_to_judge(found):
    assert judge(found).allowed


def test_a_workload_is_judged_up_to_so_many_containers_and_what_follows_is_told():
    bad = {"name": "b", "template": template({NUMBER: "1.5"})}

    def job(tasks):
        return judge({"spec": {"tasks": [*tasks, bad]}})

    assert job([{"name": "a", "template": template()}] * 20).codes == ("CS101",)
    verdict = job([{"name": "a", "template": template()}] * 60)
    assert verdict.allowed
    assert told(verdict) == [
        "CS220 spec.tasks[48].template and the parts after it were not checked, because it has too many containers; "
        "its pods are checked when created"
    ]
    crowded = template()
    crowded["spec"]["containers"] *= 65
    assert job([{"name": "a", "template": crowded}]).codes == ("CS220", "CS101")


@pytest.mark.parametrize("key", ["volcano.sh/vgpu-mode", "nvidia.com/use-gputype", "volcano.sh/gpu-index"])
def test_what_chooses_cards_beside_a_template_is_told_with_its_right_place(key):
    word = {"volcano.sh/vgpu-mode": "mig", "nvidia.com/use-gputype": "A100"}.get(key, "0")
    beside = {key: word, "kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/a": "b"}
    for place, make in PLACES.items():
        workload = make(template())
        workload["metadata"] = {"annotations": beside}
        verdict = judge(workload)
        assert (verdict.allowed, [one.code for one in verdict.warnings]) == (True, ["CS120"])
        where = f"metadata: annotation {key}: write it in {place}.metadata.annotations"
        assert verdict.warnings[0].text.startswith(where)
        assert len(told(verdict)[0]) < 256
    # Where the template has it too, beside a template without cards, or where nothing of the template changed.
    assert "CS120" not in [
        one.code for one in judge(deployment(template(None, {key: word}), annotations=beside)).warnings
    ]
    assert told(judge(deployment(template({"cpu": "1"}), annotations=beside))) == []
    assert told(judge(deployment(template(), annotations=beside), deployment(template()))) == []
    whole = deployment(template({"nvidia.com/gpu": "1"}), annotations={"nvidia.com/use-gputype": "A100"})
    assert [one.code for one in judge(whole).warnings] == ["CS120"]


def job(least, *tasks):
    made = [{"replicas": count, "minAvailable": of_task, "template": template()} for count, of_task in tasks]
    return {"metadata": {"name": "j"}, "spec": {"minAvailable": least, "tasks": made}}


@pytest.mark.parametrize(
    ("workload", "fields"),
    [
        (job(5, (2, None), (2, None)), ["spec.minAvailable"]),
        (job(4, (2, None), (2, 2)), []),
        (job(None, (2, 3), (2, None)), ["spec.tasks[0].minAvailable"]),
        (job(4, (1, 2), (2, 3)), ["spec.minAvailable", "spec.tasks[0].minAvailable", "spec.tasks[1].minAvailable"]),
        (job(2, (None, 2)), ["spec.minAvailable", "spec.tasks[0].minAvailable"]),
    ],
    ids=["job", "as-many", "task", "both", "one-by-default"],
)
def test_a_job_that_wants_more_pods_together_than_it_makes_is_told(workload, fields):
    verdict = judge(workload)
    assert verdict.allowed
    assert [(one.code, one.text.partition(":")[0]) for one in verdict.warnings] == [("CS221", one) for one in fields]


@pytest.mark.parametrize(
    ("least", "depends", "told"),
    [
        (4, {"name": ["a"]}, "found '4'; write 2 or less: 4 pods"),
        (3, {"name": ["a"]}, "found '3'; write 2 or less: 3 pods"),
        (None, {"name": ["a"]}, "found none; write 2 or less: 4 pods"),
        (2, {"name": ["a"]}, None),
        (4, {"name": []}, None),
        (4, None, None),
    ],
)
def test_a_job_that_wants_pods_together_with_those_made_after_them_is_told(least, depends, told):
    made = job(least, (2, None), (2, None))
    made["spec"]["tasks"][1]["dependsOn"] = depends
    texts = [one.text for one in judge(made).warnings if one.code == "CS223"]
    assert [one.partition(" start together")[0] for one in texts] == ([f"spec.minAvailable: {told}"] if told else [])


@pytest.mark.parametrize(
    ("scheduler", "with_cards", "without", "least", "told"),
    [
        ("volcano", None, "default-scheduler", 2, ("default-scheduler", "volcano")),
        (None, None, "default-scheduler", None, ("default-scheduler", "volcano")),
        (None, "cardshare", "other", 2, ("other", "cardshare")),
        ("default-scheduler", None, None, 2, ("default-scheduler", "cardshare")),
        (None, "other", "default-scheduler", 2, None),
        ("volcano", None, None, 2, None),
        ("volcano", "cardshare", None, 2, None),
        ("volcano", None, "default-scheduler", 1, None),
    ],
)
def test_a_task_without_cards_that_another_scheduler_starts_alone_is_told(scheduler, with_cards, without, least, told):
    made = job(least, (1, None), (1, None))
    first, second = made["spec"]["tasks"]
    first["template"] = template(**({"schedulerName": with_cards} if with_cards else {}))
    second["template"] = template({"cpu": "1"}, **({"schedulerName": without} if without else {}))
    made["spec"]["schedulerName"] = scheduler
    verdict = judge(made, scheduler_names=("cardshare", "volcano"))
    texts = [one.text for one in verdict.warnings if one.code == "CS224"]
    expected = [f"spec.tasks[1].template.spec.schedulerName: found '{told[0]}'; write '{told[1]}'"] if told else []
    assert [one.partition(": another")[0] for one in texts] == expected
    assert verdict.allowed


MIN_MEMBER = "scheduling.volcano.sh/group-min-member"


def rolling(least, replicas=4, strategy=None, *, kind="Deployment", scheduler="volcano", annotations=None):
    return {
        "kind": kind,
        "metadata": {"name": "w", "annotations": {MIN_MEMBER: least} if least else {}},
        "spec": {
            "replicas": replicas,
            "template": template(schedulerName=scheduler, annotations=annotations),
            **({"strategy": strategy} if strategy is not None else {}),
        },
    }


def parts(surge=None, unavailable=None):
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@pytest.mark.parametrize(
    ("workload", "lacks"),
    [
        (rolling("4"), ("25%", 3, 2)),
        (rolling("3", 3), ("25%", 3, 1)),
        (rolling("2", 5, parts("20%", 0)), ("20%", 2, 1)),
        (rolling("3", 8, parts(0, 0)), ("0", 2, 1)),
        (rolling(None, annotations={MIN_MEMBER: "4"}), ("25%", 3, 2)),
        (rolling("2"), None),
        (rolling("2", 5, parts("21%", 0)), None),
        (rolling("4", 4, parts(4, 0)), None),
        (rolling("4", 4, parts("100%")), None),
        (rolling("4", 4, {"type": "Recreate"}), None),
        (rolling("1", 1), None),
        (rolling("x"), None),
        (rolling("4", 4, parts("much")), None),
        (rolling("4", kind="StatefulSet"), None),
        (rolling("4", scheduler="cardshare"), None),
        (rolling("4", annotations={"scheduling.k8s.io/group-name": "g"}), None),
    ],
    ids=[
        *("default", "rounded", "part", "neither", "of-pods"),
        *("enough-by-default", "rounded-up", "all", "all-in-percent", "recreate", "one", "no-number", "no-part"),
        *("stateful-set", "not-volcanos", "one-group-for-all"),
    ],
)
def test_an_update_that_makes_fewer_pods_at_first_than_are_wanted_together_is_told(workload, lacks):
    verdict = judge(workload)
    assert verdict.allowed
    texts = [one.text for one in verdict.warnings if one.code == "CS222"]
    if lacks is None:
        assert texts == []
    else:
        found, more, made = lacks
        (text,) = texts
        assert text.startswith(
            f"spec.strategy.rollingUpdate.maxSurge: found '{found}'; write {more} or more, or strategy type Recreate: "
        )
        assert f"an update first creates {made} and" in text


def test_an_update_is_not_judged_of_a_deployment_without_cards():
    plain = rolling("4")
    plain["spec"]["template"] = template({"cpu": "1"}, schedulerName="volcano")
    assert judge(plain).warnings == ()


def test_a_template_that_hamis_webhook_is_to_ignore_says_itself_what_would_be_completed():
    found = template({"nvidia.com/gpumem": "1000"})
    assert judge(deployment(found)).allowed
    found["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert judge(deployment(found)).codes == ("CS319",)
