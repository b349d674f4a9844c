"""New pods: what is completed, what is protected, what is denied, and how much is judged."""

import re
from dataclasses import replace
from functools import partial

import pytest

from core.admission.mutate import validate
from core.admission.rulebook import rulebook
from core.admission.verdict import NOTHING
from core.catalog import standard_catalog
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendTable
from core.dialects.hami.table import HamiTable
from core.errors import InvalidRequestError
from core.settings import AdmissionSettings, Settings, Tables
from core.wire.reviews import decode_review
from tests.support.devices.vendors import TABLES as VENDOR_TABLES
from tests.support.worlds.admission import (
    BOOK,
    INDEX,
    MODE,
    USER,
    VGPU,
    WISH,
    ask,
    changed,
    create,
    on_node,
    pod,
    question,
    stored,
    update,
)

# Completing


def test_a_pod_that_asks_for_nothing_is_left_alone():
    answer = create(pod({"cpu": "1"}, annotations={"a/b c": "d"}))
    assert (answer.allowed, answer.patch, answer.warnings) == (True, [], [])


def test_a_pod_with_shares_gets_our_scheduler_and_requests():
    answer = create(pod(VGPU))
    assert answer.pod["spec"]["schedulerName"] == "cardshare"
    assert answer.resources == {"limits": VGPU, "requests": VGPU}


@pytest.mark.parametrize(
    "limits",
    [{"volcano.sh/vgpu-memory": "1"}, {"volcano.sh/vgpu-cores": "10"}, {"volcano.sh/vgpu-memory-percentage": "50"}],
)
def test_a_share_without_a_number_is_one_card(limits):
    answer = create(pod(limits))
    assert answer.resources["limits"] == {**limits, "volcano.sh/vgpu-number": "1"}
    assert answer.resources["requests"] == answer.resources["limits"]


def test_limits_are_filled_from_requests():
    answer = create(pod(requests={"volcano.sh/gpu-memory": "1024"}))
    assert answer.resources["limits"] == {"volcano.sh/gpu-memory": "1024"}


def test_quantities_are_written_plainly():
    answer = create(pod({"volcano.sh/gpu-memory": "1k", "cpu": "1e3"}))
    assert answer.resources["limits"] == {"volcano.sh/gpu-memory": "1000", "cpu": "1e3"}


def test_missing_parents_are_made_once():
    document = pod(annotations={})
    document["spec"]["containers"][0].pop("resources")
    document["spec"]["containers"].append({"name": "b", "resources": {"requests": {"volcano.sh/vgpu-memory": "5"}}})
    answer = create(document)
    assert answer.pod["spec"]["containers"][1]["resources"]["limits"] == {
        "volcano.sh/vgpu-memory": "5",
        "volcano.sh/vgpu-number": "1",
    }
    assert "resources" not in answer.pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("scheduler", "after"), [("", "cardshare"), ("cardshare", "cardshare"), ("volcano", "volcano"), ("mine", "mine")]
)
def test_only_the_default_scheduler_is_replaced(scheduler, after):
    assert create(pod(VGPU, scheduler=scheduler)).pod["spec"]["schedulerName"] == after


def test_an_absent_scheduler_name_is_added():
    document = pod(VGPU)
    del document["spec"]["schedulerName"]
    assert create(document).pod["spec"]["schedulerName"] == "cardshare"


@pytest.mark.parametrize(
    ("text", "after", "told"),
    [("MIG ", "mig", True), ("hami-core", "hami-core", False), ("", None, False), ("  ", None, False)],
)
def test_a_mode_is_trimmed_and_lower_cased(text, after, told):
    answer = create(pod(VGPU, annotations={MODE: text}))
    assert answer.annotations.get(MODE) == after
    assert bool(answer.warnings) is told


def test_the_namespaces_mode_is_the_default():
    settings = Settings(admission=AdmissionSettings(default_mode={"n": "mig"}))
    book = rulebook(settings, Tables(), standard_catalog())
    assert create(pod(VGPU), book=book).annotations[MODE] == "mig"
    assert create(pod(VGPU, annotations={MODE: "mps"}), book=book).annotations[MODE] == "mps"
    assert create(pod({"volcano.sh/gpu-memory": "1"}), book=book).annotations == {}


NPU = {"ring-controller.atlas": "ascend-310P"}
CHIP = {"huawei.com/Ascend310P": "1"}


@pytest.mark.parametrize(
    ("labels", "after"),
    [
        (NPU, {**NPU, "vnpu-level": "low", "vnpu-dvpp": "null"}),
        ({**NPU, "vnpu-level": "high"}, {**NPU, "vnpu-level": "high", "vnpu-dvpp": "null"}),
        ({**NPU, "vnpu-level": "low", "vnpu-dvpp": "null"}, {**NPU, "vnpu-level": "low", "vnpu-dvpp": "null"}),
    ],
    ids=["none", "one", "both"],
)
def test_a_slice_of_an_npu_says_by_labels_what_it_is(labels, after):
    answer = create(pod({"huawei.com/npu-core": "2"}, labels=labels))
    assert answer.pod["metadata"]["labels"] == after
    assert answer.warnings == []


def test_whole_npus_have_no_labels_to_choose_by():
    assert create(pod({"huawei.com/npu-core": "8"}, labels=NPU)).pod["metadata"]["labels"] == NPU


def with_runtime_class(name):
    chips = tuple(replace(one, runtime_class=name) for one in SHIPPED_CHIPS if one.named.type == "Ascend310P")
    return rulebook(Settings(), Tables(sections=(AscendTable(chips=chips),)), standard_catalog())


def test_a_pod_with_chips_gets_the_runtime_class_of_its_chip_type():
    answer = create(pod(CHIP), book=with_runtime_class("ascend"))
    assert answer.pod["spec"]["runtimeClassName"] == "ascend"
    assert answer.warnings == ["CS117 spec.runtimeClassName: ascend was added, from device-config.yaml for Ascend310P"]


def test_a_runtime_class_is_kept_and_none_is_made_up():
    own = pod(CHIP)
    own["spec"]["runtimeClassName"] = "mine"
    assert create(own, book=with_runtime_class("ascend")).pod["spec"]["runtimeClassName"] == "mine"
    assert "runtimeClassName" not in create(pod(CHIP)).pod["spec"]
    assert "runtimeClassName" not in create(pod(VGPU), book=with_runtime_class("ascend")).pod["spec"]


@pytest.mark.parametrize(
    "key", ["huawei.com/vnpu-mode", "hami.io/use-Ascend310P-uuid", "hami.io/no-use-Ascend310P-uuid"]
)
def test_what_a_pod_says_of_its_chips_is_free_while_it_waits_and_frozen_once_it_is_bound(key):
    old = create(pod(CHIP)).pod
    assert update(old, changed(old, **{key: "hami-core"})).allowed
    bound = on_node(old, "node-a")
    assert update(bound, changed(bound, **{key: "hami-core"})).codes == ["CS305"]


def test_an_ill_wish_for_chips_is_denied_while_the_pod_waits():
    old = create(
        pod({**CHIP, "huawei.com/Ascend310P-core": "20"}, annotations={"huawei.com/vnpu-mode": "hami-core"})
    ).pod
    assert update(old, changed(old, **{"huawei.com/vnpu-mode": None})).codes == ["CS208"]


HAMIS = rulebook(Settings(), Tables(sections=(HamiTable(installed=True, runtime_class="nvidia"),)), standard_catalog())


@pytest.mark.parametrize(
    ("limits", "book", "name"),
    [(CHIP, with_runtime_class("ascend"), "ascend"), ({"nvidia.com/gpu": "1"}, HAMIS, "nvidia")],
)
def test_a_manifest_without_the_runtime_class_can_replace_the_pod(limits, book, name):
    old = create(pod(limits), book=book).pod
    assert update(old, pod(limits), book=book).pod["spec"]["runtimeClassName"] == name


# Protecting


def test_an_assignment_is_stripped_from_every_new_pod_and_named():
    forged = {"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1,1:", "hami.io/Ascend310P-devices-allocated": "x", "keep": "1"}
    answer = create(pod({"cpu": "1"}, annotations=forged))
    assert answer.annotations == {"keep": "1"}
    assert answer.warnings == [
        "CS301 removed, because only schedulers and device plugins write it: "
        "hami.io/Ascend310P-devices-allocated, volcano.sh/vgpu-ids-new"
    ]
    assert answer.pod["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("key", [
    "volcano.sh/vgpu-node", "volcano.sh/vgpu-time", "volcano.sh/devices-to-allocate", "volcano.sh/bind-phase",
    "volcano.sh/bind-time", "volcano.sh/predicate-time", "volcano.sh/gpu-assigned", "predicate-time",
    "hami.io/vgpu-node", "hami.io/Ascend910B4-1-devices-to-allocate", "huawei.com/Ascend910A", "huawei.com/npu-core",
    "huawei.com/AscendReal", "huawei.com/kltDev", "cardshare.io/segment-queue",
])  # fmt: skip
def test_every_key_of_the_machines_is_protected(key):
    assert key not in create(pod(VGPU, annotations={key: "x"})).annotations
    assert update(stored(), changed(stored(), **{key: "x"})).codes == ["CS301"]


def test_a_wish_by_index_is_moved_to_the_users_key():
    answer = create(pod({"volcano.sh/gpu-number": "2"}, annotations={INDEX: "0,2"}))
    assert answer.annotations == {WISH: "0,2"}
    assert answer.warnings[0].startswith("CS311 annotation volcano.sh/gpu-index was moved")


@pytest.mark.parametrize("wished", [{}, {WISH: "0,1"}], ids=["any card", "two of them"])
@pytest.mark.parametrize("beside", [{}, {"volcano.sh/gpu-unhealthy-ids": "3"}], ids=["nothing", "cards to avoid"])
def test_the_position_that_a_copied_pod_was_assigned_is_no_wish(wished, beside):
    assigned = {INDEX: "1", "volcano.sh/predicate-time": "1787220672000000000", "volcano.sh/gpu-assigned": "true"}
    answer = create(pod({"volcano.sh/gpu-memory": "1"}, annotations={**assigned, **wished, **beside}))
    assert answer.allowed
    assert answer.annotations == wished | ({"cardshare.io/avoid-cards": "3"} if beside else {})
    removed = "volcano.sh/gpu-assigned, volcano.sh/gpu-index, volcano.sh/predicate-time"
    assert f"CS301 removed, because only schedulers and device plugins write it: {removed}" in answer.warnings


def test_cards_to_avoid_are_moved_to_the_users_key():
    answer = create(pod({"volcano.sh/gpu-memory": "1"}, annotations={"volcano.sh/gpu-unhealthy-ids": "3"}))
    assert answer.annotations == {"cardshare.io/avoid-cards": "3"}


@pytest.mark.parametrize(("number", "stays"), [("2", True), ("3", False)])
@pytest.mark.parametrize("scheduler", ["hami-scheduler", "default-scheduler"])
def test_the_number_of_cards_that_hamis_webhook_repeats_stays_if_it_is_right(number, stays, scheduler):
    key = "mthreads.com/request-gpu-num"
    document = pod({"mthreads.com/vgpu": "2"}, annotations={key: number}, scheduler=scheduler)
    book = rulebook(Settings(), VENDOR_TABLES, standard_catalog())
    answer = create(document, book=book)
    assert (answer.annotations, bool(answer.warnings)) == (({key: number}, False) if stays else ({}, True))
    assert validate(decode_review(question("CREATE", document)), book).allowed is stays


def test_an_index_on_a_pod_without_cards_is_stripped():
    assert create(pod({"cpu": "1"}, annotations={INDEX: "0"})).annotations == {}


def test_a_mirror_pod_is_admitted_whatever_it_asks():
    document = pod(VGPU, node="a", annotations={"kubernetes.io/config.mirror": "h", INDEX: "0"})
    answer = ask("CREATE", document, user="system:node:a")
    assert answer.allowed
    assert answer.pod["spec"] == document["spec"]
    assert answer.annotations == {"kubernetes.io/config.mirror": "h"}
    assert not ask("CREATE", document, user=USER).allowed


# Denying


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (pod(VGPU, annotations={MODE: "hami-cor"}), "CS104", "found 'hami-cor'; did you mean 'hami-core'?"),
        (pod({**VGPU, "volcano.sh/vgpu-cores": "150"}), "CS103", "found '150'"),
        (pod({**VGPU, "volcano.sh/vgpu-memory-percentage": "0"}), "CS102", "1 to 100"),
        (pod({**VGPU, "volcano.sh/vgpu-memory": "1500m"}), "CS101", 'container "main"'),
        # A number of MiB that can be read, but that nobody means.
        (
            pod({**VGPU, "volcano.sh/vgpu-memory": "1Gi"}),
            "CS101",
            "found '1Gi'; the unit is MiB already; write a whole",
        ),
        (pod({"volcano.sh/gpu-memory": "512Mi"}), "CS101", "such as '512'"),
        (pod({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1536Mi"}), "CS101", "such as '1536'"),
        (pod({"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-memory": "1Gi"}), "CS101", "such as '1024'"),
        (pod({"volcano.sh/gpu-memory": "1", **VGPU}), "CS201", "vgpu"),
        (pod(VGPU, annotations={INDEX: "0,x"}), "CS105", f"annotation {INDEX}: found '0,x'"),
        (pod(VGPU, annotations={WISH: "0,x"}), "CS105", f"annotation {WISH}: found '0,x'"),
        (
            pod(VGPU, annotations={"volcano.sh/gpu-unhealthy-ids": "a b"}),
            "CS107",
            "annotation volcano.sh/gpu-unhealthy-ids: found 'a b'",
        ),
        (pod({"volcano.sh/gpu-number": "2"}, annotations={INDEX: "0"}), "CS106", f"annotation {INDEX}: found '0'"),
        (pod(VGPU, annotations={INDEX: "0", WISH: "1"}), "CS206", "write cardshare.io/gpu-index only"),
        (
            pod(VGPU, annotations={"nvidia.com/use-gputype": "A100,T4", "nvidia.com/nouse-gputype": "T4"}),
            "CS206",
            "found 'T4'",
        ),
        (
            pod(VGPU, annotations={"nvidia.com/use-gputype": "A100, Tesla-T4", "nvidia.com/nouse-gputype": "tesla t4"}),
            "CS206",
            "found 'Tesla-T4'",
        ),
        (pod(VGPU, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-1;GPU-2"}), "CS107", "joined by ','"),
        (pod(VGPU, annotations={"nvidia.com/use-gputype": "A1\u001b00"}), "CS108", "\\x1b"),
        (pod(VGPU, requests={**VGPU, "volcano.sh/vgpu-memory": "1"}), "CS207", "request volcano.sh/vgpu-memory"),
        (
            pod({"volcano.sh/vgpu-number": "0"}, requests={"volcano.sh/vgpu-number": "1"}),
            "CS207",
            "request volcano.sh/vgpu-number",
        ),
        (pod(VGPU, node="node-a"), "CS302", "nodeSelector"),
        (pod(VGPU, container={"securityContext": {"privileged": True}}), "CS303", "privileged"),
        (pod(VGPU, container={"env": [{"name": "CUDA_DEVICE_SM_LIMIT", "value": "9"}]}), "CS304", "CUDA_DEVICE_SM"),
        (pod(VGPU, container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}), "CS304", "NVIDIA_VIS"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("CS") else "",
)
def test_what_cannot_be_mended_is_denied_with_place_value_and_remedy(document, code, words):
    answer = create(document)
    assert not answer.allowed
    assert code in answer.codes
    assert words in answer.message


@pytest.mark.parametrize("resource", ["volcano.sh/vgpu-number", "nvidia.com/gpu"])
def test_a_pod_that_asks_for_0_cards_may_name_its_node(resource):
    document = pod({resource: "0"}, node="node-a")
    assert create(document).allowed
    assert not create(pod({resource: "0", "volcano.sh/vgpu-memory": "1"}, node="node-a")).allowed


def test_every_violation_is_told_at_once():
    answer = create(pod({**VGPU, "volcano.sh/vgpu-cores": "150"}, node="a", annotations={MODE: "x"}))
    assert {"CS103", "CS104", "CS302"} <= set(answer.codes)


def test_what_is_found_of_several_resources_is_told_in_the_same_order_by_every_process():
    """Replicas that tell it in another order make events that do not merge."""
    keys = [f"volcano.sh/vgpu-{what}" for what in ("cores", "memory", "memory-percentage", "number")]
    answer = create(pod(dict.fromkeys(keys, "2"), requests=dict.fromkeys(keys, "1")))
    assert re.findall(r"request (volcano\S+?):? ", answer.message) == keys


def test_settings_let_pass_what_evades_limits():
    admission = AdmissionSettings(allow_privileged=True, allow_limit_overrides=True)
    book = rulebook(Settings(admission=admission), Tables(), standard_catalog())
    container = {"securityContext": {"privileged": True}, "env": [{"name": "CUDA_DISABLE_CONTROL", "value": "1"}]}
    assert create(pod(VGPU, container=container), book=book).allowed
    assert not create(pod(VGPU, container=container)).allowed


def test_what_is_no_pod_is_an_error_with_its_place():
    with pytest.raises(InvalidRequestError, match=r"request\.object\.metadata\.name"):
        ask("CREATE", {"metadata": {"name": 5}})


def test_a_pod_without_a_namespace_has_the_reviews():
    book = rulebook(Settings(admission=AdmissionSettings(default_mode={"n": "mig"})), Tables(), standard_catalog())
    document = pod(VGPU)
    del document["metadata"]["namespace"]
    assert create(document, book=book).annotations[MODE] == "mig"


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "", "version": "v1", "kind": "Binding"}, "subResource": "binding"},
    ],
    ids=["delete", "connect", "deployment", "binding"],
)
def test_what_no_rule_names_is_admitted(fields):
    operation = fields.pop("operation", "CREATE")
    answer = ask(operation, pod(VGPU, node="a"), **fields)
    assert (answer.allowed, answer.patch) == (True, [])


def test_a_share_beside_a_whole_gpu_is_denied_at_once_and_not_only_when_it_is_ours():
    answer = create(pod({"volcano.sh/vgpu-number": "1", "nvidia.com/gpu": "1"}))
    assert answer.codes == ["CS201"]


# How much is judged


def crowd(count, limits=VGPU, where="containers", **fields):
    new = pod({}, **fields)
    new["spec"][where] = [{"name": f"c{at}", "image": "i", "resources": {"limits": limits}} for at in range(count)]
    return new


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_with_cards_of_too_many_containers_is_denied_with_one_word(where):
    limits = {"huawei.com/Ascend310P": "1"} if where == "initContainers" else VGPU
    assert create(crowd(63, limits, where)).allowed
    answer = create(crowd(65, limits, where))
    assert answer.message.startswith("CS220 containers: found 6")
    assert answer.message.endswith("a pod with cards has no more than 64, init containers included; use more pods")
    # One that asks is enough.
    mixed = crowd(500, {"cpu": "1"})
    mixed["spec"]["containers"][499]["resources"] = {"requests": VGPU}
    assert create(mixed).message.startswith("CS220 containers: found 500")


def test_a_pod_of_many_containers_without_cards_of_ours_is_left_alone():
    assert create(crowd(500, {"cpu": "1"})).patch == []
    assert create(crowd(500, {"volcano.sh/vgpu-number": "0"})).allowed
    assert create(crowd(500, {"nvidia.com/gpu": "1"})).patch == []
    assert not create(crowd(500, {"nvidia.com/gpu": "1"}, scheduler="cardshare")).allowed


def of_many(*more, limits=VGPU):
    """A pod of more containers than are judged, which all but *more* ask for nothing."""
    new = crowd(30_000, {})
    new["spec"]["containers"] += [{"name": "x", "image": "i", "resources": {"requests": one}} for one in more]
    return new


# Made by the test: each process that collects it would make them all, and keep 20 MiB of each.
@pytest.mark.parametrize(
    "made",
    [
        partial(of_many, VGPU),
        partial(of_many, {"cpu": "1"}, {"volcano.sh/vgpu-number": "0"}),
        partial(crowd, 513, annotations={MODE: "mig"}),
    ],
    ids=["cards", "no cards", "a wish"],
)
def test_a_pod_of_more_containers_than_any_has_is_denied_if_it_speaks_of_cards(made):
    new = made()
    answer = create(new)
    assert re.match(r"CS100 spec.containers: found '\d+'; write no more than 512", answer.message)
    review = decode_review(question("CREATE", new))
    assert validate(review, BOOK).message == answer.message


@pytest.mark.parametrize(
    "made",
    [partial(crowd, 513, {"cpu": "1"}), partial(crowd, 30_000, {}), partial(of_many, {"example.com/fpga": "1"})],
    ids=["513", "30,000", "of others"],
)
def test_a_pod_of_more_containers_than_any_has_that_asks_for_nothing_of_ours_is_the_api_servers_to_judge(made):
    new = made()
    answer = create(new)
    assert answer.allowed
    assert answer.patch == []
    assert validate(decode_review(question("CREATE", new)), BOOK) == NOTHING
    assert update(new, new).patch == []


def test_a_pod_that_has_more_containers_than_are_judged_can_still_be_changed():
    assert update(crowd(600, {"cpu": "1"}), crowd(600, {"cpu": "1"}, annotations={MODE: "mig"})).allowed
    assert update(crowd(600), crowd(600, annotations={"note": "1"})).allowed
    assert not update(crowd(600), crowd(601)).allowed


def test_of_a_hundred_forged_annotations_the_first_are_told_and_how_many_more_there_are():
    forged = {f"huawei.com/Ascend{at:03}": "x" for at in range(100)}
    answer = create(pod(VGPU, annotations=forged))
    assert answer.allowed
    assert not answer.annotations
    assert answer.warnings[0].endswith("huawei.com/Ascend014, huawei.com/Ascend015 and 84 more")
    old = stored()
    denied = update(old, changed(old, **forged))
    assert denied.message.count("CS301") == 17
    assert denied.message.endswith("the same goes for 84 more")


def test_of_a_hundred_variables_that_lift_limits_the_first_are_told():
    env = [{"name": f"CUDA_DEVICE_{at}", "value": "1"} for at in range(100)]
    message = create(pod(VGPU, container={"env": env})).message
    assert message.count("CS304") == 17
    assert message.endswith("the same goes for 84 more")


def test_a_list_of_too_many_items_is_denied():
    for key in ("volcano.sh/vgpu-use-gpuuuid", "nvidia.com/use-gputype"):
        assert create(pod(VGPU, annotations={key: ",".join(f"a{at}" for at in range(512))})).allowed
        answer = create(pod(VGPU, annotations={key: ",".join(f"a{at}" for at in range(513))}))
        assert "write no more than 512 items" in answer.message
