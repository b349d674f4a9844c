"""What would reach more than a share, in every container of a pod with cards, on pods and on templates."""

import json

import jsonpatch
import pytest

from core.admission import reach
from core.admission.fingerprint import fingerprint, values_read
from core.admission.mutate import mutate, validate
from core.admission.rulebook import Rulebook, rulebook
from core.admission.templates import judge_workload
from core.catalog import standard_catalog
from core.settings import AdmissionSettings, Settings, Tables
from core.watched import is_watched
from core.wire.reviews import decode_review
from core.wire.templates import decode_workload
from tests.support.devices import vendors

VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
CHIP = {"huawei.com/Ascend310P": "1"}
OTHER = {"cpu": "1"}


def book(**admission) -> Rulebook:
    return rulebook(Settings(admission=AdmissionSettings(**admission)), Tables(), standard_catalog())


def env(name, value=None, **source):
    return {"env": [{"name": name} | ({} if value is None else {"value": value}) | source]}


def mount(path):
    return {"volumeMounts": [{"name": "v", "mountPath": path}]}


def security(**fields):
    return {"securityContext": fields}


def pod(cards, *, main=None, second=None, prepare=None, namespace="n", **spec):
    """A pod whose container "main" asks for *cards*; "second" and the init container "prepare" ask for none."""
    containers = [{"name": "main", "image": "i", "resources": {"limits": dict(cards)}, **(main or {})}]
    if second is not None:
        containers.append({"name": "second", "image": "i", **second})
    found = {"metadata": {"name": "p", "namespace": namespace}, "spec": {"containers": containers, **spec}}
    if prepare is not None:
        found["spec"]["initContainers"] = [{"name": "prepare", "image": "i", **prepare}]
    return found


def request(kind, new, old=None, sub_resource="", group=""):
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "r",
                "kind": {"group": group, "version": "v1", "kind": kind},
                "operation": "CREATE" if old is None else "UPDATE",
                "subResource": sub_resource,
                "namespace": new["metadata"].get("namespace", "n"),
                "userInfo": {"username": "dana"},
                "object": new,
                "oldObject": old,
            },
        }
    ).encode()


def created(document, **admission):
    """(the verdict on the final state, the pod as it is stored)."""
    rules = book(**admission)
    verdict, patch = mutate(decode_review(request("Pod", document)), rules)
    stored = jsonpatch.apply_patch(document, json.loads(patch) if patch else [])
    if verdict.allowed:
        again, nothing = mutate(decode_review(request("Pod", stored)), rules)
        assert (again.allowed, nothing) == (True, b"")
    return (validate(decode_review(request("Pod", stored)), rules) if verdict.allowed else verdict), stored


def codes(document, **admission):
    return [one.code for one in created(document, **admission)[0].violations]


def on_template(document, **admission):
    deployment = {
        "metadata": {"name": "d", "namespace": document["metadata"]["namespace"]},
        "spec": {"template": {"metadata": {}, "spec": document["spec"]}},
    }
    workload = decode_workload(request("Deployment", deployment, group="apps"))
    return [
        one.code for one in judge_workload(workload, document["metadata"]["namespace"], book(**admission)).violations
    ]


ANY_CONTAINER = [
    pytest.param(security(privileged=True), "CS303", id="privileged"),
    pytest.param(security(capabilities={"add": ["SYS_ADMIN"]}), "CS307", id="sys-admin"),
    pytest.param(security(capabilities={"add": ["NET_ADMIN", "cap_sys_admin"]}), "CS307", id="sys-admin-spelled"),
    pytest.param(security(capabilities={"add": ["ALL"]}), "CS307", id="all"),
    pytest.param(env("NVIDIA_VISIBLE_DEVICES", "all"), "CS304", id="nvidia"),
    pytest.param(env("NVIDIA_VISIBLE_DEVICES", "$(WHICH)"), "CS304", id="nvidia-expanded"),
    pytest.param(
        env("NVIDIA_VISIBLE_DEVICES", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}), "CS304", id="nvidia-from"
    ),
    pytest.param(env("ASCEND_VISIBLE_DEVICES", "0-7"), "CS304", id="ascend"),
    pytest.param(env("ASCEND_VNPU_SPECS", "vir04"), "CS304", id="ascend-specs"),
    pytest.param(env("ASCEND_RUNTIME_OPTIONS", "NODRV"), "CS304", id="ascend-options"),
    pytest.param(env("ASCEND_SOMETHING_NEW", "1"), "CS304", id="ascend-new"),
    pytest.param(env("NPU_MEM_QUOTA", "32768"), "CS304", id="npu-quota"),
    pytest.param(env("NPU_PRIORITY", "100"), "CS304", id="npu-priority"),
    pytest.param(env("GPU_CORE_UTILIZATION_POLICY", "disable"), "CS304", id="policy"),
    pytest.param(env("GPU_CORE_UTILIZATION_POLICY", "forced"), "CS304", id="policy-unknown"),
    pytest.param(env("GPU_CORE_UTILIZATION_POLICY"), "CS304", id="policy-empty"),
    pytest.param(env("CUDA_OVERSUBSCRIBE", "true"), "CS304", id="oversubscribe"),
    pytest.param(env("CUDA_DISABLE_CONTROL", "x"), "CS304", id="no-control"),
    pytest.param(env("CUDA_DEVICE_MEMORY_LIMIT_0", "0m"), "CS304", id="limit"),
    pytest.param(env("CUDA_TASK_PRIORITY", "2"), "CS304", id="priority-2"),
    pytest.param(env("CUDA_TASK_PRIORITY", "-1"), "CS304", id="priority-below"),
    pytest.param(env("CUDA_TASK_PRIORITY", ""), "CS304", id="priority-empty"),
    pytest.param(mount("/etc/ld.so.preload"), "CS310", id="preload"),
    pytest.param(mount("/etc/../etc//./ld.so.preload"), "CS310", id="preload-spelled"),
    pytest.param(mount("//etc/ld.so.preload/"), "CS310", id="preload-slashes"),
    pytest.param(mount("etc/ld.so.preload"), "CS310", id="preload-relative"),
    pytest.param(mount("/usr/local/vgpu"), "CS310", id="library"),
    pytest.param(mount("/usr/local/vgpu/libvgpu.so"), "CS310", id="library-file"),
    pytest.param(mount("/var/run/nvidia-container-devices/all"), "CS310", id="devices-by-mount"),
    pytest.param(mount("/var/run/nvidia-container-devicesall"), "CS310", id="devices-by-mount-without-slash"),
    pytest.param(mount("/hami-vnpu-core"), "CS310", id="npu-library"),
    pytest.param(mount("/etc/vdev/docker"), "CS310", id="dcu-limits"),
]


@pytest.mark.parametrize("cards", [VGPU, CHIP, {"volcano.sh/gpu-memory": "1000"}], ids=["vgpu", "chip", "share"])
@pytest.mark.parametrize(("fields", "code"), ANY_CONTAINER)
def test_every_container_of_a_pod_with_cards_is_judged(cards, fields, code):
    for place in ("main", "second", "prepare"):
        document = pod(cards, **{place: fields})
        verdict, _ = created(document)
        assert [one.code for one in verdict.violations] == [code], place
        assert f'container "{place}"' in verdict.violations[0].field
        assert on_template(document) == [code]
        assert codes(pod(OTHER, **{place: fields})) == []
    assert debugged(cards, fields) == [code]
    assert debugged(OTHER, fields) == []


def debugged(cards, fields, **admission):
    """What is found of a container with *fields* that `kubectl debug` adds."""
    old = pod(cards)
    new = pod(cards, ephemeralContainers=[{"name": "debug", "image": "i", **fields}])
    return [
        one.code
        for one in validate(
            decode_review(request("Pod", new, old, sub_resource="ephemeralcontainers")), book(**admission)
        ).violations
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "//",
        "/dev",
        "/dev/",
        "/dev/.",
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps",
        "/dev/davinci3",
        "/dev/davinci_manager",
        "/dev/vdavinci105",
        "/dev/devmm_svm",
        "/dev/hisi_hdc",
        "/dev/dri/renderD128",
        "/dev/char",
        "/run/nvidia",
        "/var/run/nvidia/driver",
        "/dev/shm/../nvidia0",
        "/proc/1/root/dev",
        "/proc/self/root/",
        "/sys/fs/cgroup",
        "/sys/bus/pci/devices/0000:3b:00.0/resource0",
        "/usr/local/vgpu/libvgpu.so",
        "/usr/local/hami-vnpu-core/containers",
        "/usr/local/hami-shared-region",
        "/tmp/vgpu/containers",
        "/tmp/vgpulock",
        "/var/lib/kubelet/device-plugins/kubelet.sock",
        "/run/containerd/containerd.sock",
        "/var/run/docker.sock",
        "/run/crio",
    ],
)
def test_volumes_of_devices_are_denied(path):
    document = pod(VGPU, volumes=[{"name": "v", "hostPath": {"path": path}}])
    assert codes(document) == ["CS309"]
    assert on_template(document) == ["CS309"]
    assert codes(pod(OTHER, volumes=[{"name": "v", "hostPath": {"path": path}}])) == []


@pytest.mark.parametrize("path", reach.NODES_PATHS)
def test_what_leads_to_cards_is_denied_by_every_folder_that_holds_it_and_all_that_is_in_it(path):
    parts = path.split("/")
    ways = ["/".join(parts[:depth]) or "/" for depth in range(1, len(parts) + 1)]
    for way in [*ways, f"{path}/x"]:
        for spelled in (way, f"{way}/", f"/{way}", way.lstrip("/") or "/"):
            assert codes(pod(VGPU, volumes=[{"name": "v", "hostPath": {"path": spelled}}])) == ["CS309"], spelled


@pytest.mark.parametrize(
    "path",
    [
        "/dev/shm",
        "/dev/infiniband",
        "/dev/hugepages",
        "/data/dev/nvidia0",
        "/run/nvidia2",
        "/devices",
        "/mnt",
        "/tmp/data",
        "/tmp/vgpu2",
        "/usr/local/Ascend/driver",
        "/var/log",
        "/var/lib/data",
        "/etc/localtime",
        "/lib/modules",
    ],
)
def test_other_volumes_of_the_node_are_nobodys_business(path):
    assert codes(pod(VGPU, volumes=[{"name": "v", "hostPath": {"path": path}}, {"name": "e", "emptyDir": {}}])) == []


def test_the_nodes_processes_are_not_shown():
    document = pod(VGPU, hostPID=True)
    assert codes(document) == on_template(document) == ["CS308"]
    assert codes(pod(OTHER, hostPID=True)) == codes(pod(VGPU, hostPID=False)) == []


@pytest.mark.parametrize(
    "fields",
    [
        env("CUDA_VISIBLE_DEVICES", "0"),
        env("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        env("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
        env("CUDA_TASK_PRIORITY", "0"),
        env("CUDA_TASK_PRIORITY", "1"),
        env("GPU_CORE_UTILIZATION_POLICY", "force"),
        env("GPU_CORE_UTILIZATION_POLICY", "FORCE"),
        env("GPU_CORE_UTILIZATION_POLICY", "default"),
        env("LD_PRELOAD", "/x.so"),
        env("ASCEND_RT_VISIBLE_DEVICES", "0,1"),
        env("ASCEND_GLOBAL_LOG_LEVEL", "3"),
        env("ASCEND_SLOG_PRINT_TO_STDOUT", "1"),
        env("ASCEND_HOME_PATH", "/usr/local/Ascend"),
        env("ASCEND_LAUNCH_BLOCKING", "1"),
        env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        env("NPU_ASD_ENABLE", "1"),
        env("LD_LIBRARY_PATH", "/x"),
        mount("/etc"),
        mount("/tmp"),
        mount("/etc/ld.so.preload.d"),
        mount("/usr/local"),
        security(privileged=False, capabilities={"add": ["NET_ADMIN", "IPC_LOCK"], "drop": ["ALL"]}),
    ],
    ids=lambda fields: json.dumps(fields)[:60],
)
def test_what_reaches_no_more_than_the_share_is_admitted(fields):
    for cards in (VGPU, CHIP):
        assert codes(pod(cards, main=fields, second=fields, prepare=fields)) == []


AMD = {"amd.com/gpu": "1", "amd.com/gpumem": "1024"}
OF_VENDORS = [
    (AMD, "HIP_DEVICE_MEMORY_LIMIT"),
    (AMD, "HIP_DEVICE_MEMORY_LIMIT_0"),
    (AMD, "HSA_CU_MASK"),
    (AMD, "LD_AUDIT"),
    ({"enflame.com/drs-gcu": "2"}, "ENFLAME_VISIBLE_DEVICES"),
    ({"enflame.com/drs-gcu": "2"}, "TOPS_VISIBLE_DEVICES"),
    ({"enflame.com/gcu": "2"}, "ENFLAME_VISIBLE_DEVICES"),
]


@pytest.mark.parametrize(("cards", "name"), OF_VENDORS)
def test_what_limits_a_share_of_a_vendor_is_set_by_its_plugin_alone(cards, name):
    for place in ("main", "second", "prepare"):
        document = pod(cards, **{place: env(name, "all")})
        (found,) = judged_by_vendors(document)
        assert (found.code, found.found) == ("CS304", repr(name))
        assert found.remedy == "leave it out; the device plugin sets it for the share"
    # Libraries for other cards read it too, or it chooses among whole cards.
    assert judged_by_vendors(pod(VGPU, main=env(name, "all"))) == ()
    assert judged_by_vendors(pod({"enflame.com/gcu": "2"}, main=env("TOPS_VISIBLE_DEVICES", "0"))) == ()


def judged_by_vendors(document):
    """The violations of the pod where HAMi's configuration has all vendors."""
    return mutate(decode_review(request("Pod", document)), VENDORS)[0].violations


VENDORS = rulebook(Settings(), vendors.TABLES, standard_catalog())


def test_the_variables_of_every_dialect_are_kept_for_the_rules():
    names = [name for one in standard_catalog().specs for name in one.variables]
    assert names
    assert all(map(is_watched, names))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_VISIBLE_DEVICES", "void"),
        ("NVIDIA_VISIBLE_DEVICES", "none"),
        ("NVIDIA_VISIBLE_DEVICES", ""),
        ("ASCEND_VISIBLE_DEVICES", "void"),
        ("ASCEND_VISIBLE_DEVICES", ""),
    ],
)
def test_who_asks_for_no_cards_may_say_so_to_the_runtime(name, value):
    for cards in (VGPU, CHIP):
        assert codes(pod(cards, second=env(name, value), prepare=env(name, value))) == []
    of_others = CHIP if name.startswith("NVIDIA") else VGPU
    assert codes(pod(of_others, main=env(name, value))) == []
    own = VGPU if name.startswith("NVIDIA") else CHIP
    assert codes(pod(own, main=env(name, value))) == ["CS304"]


ESCAPES = {
    "CS303": {"second": security(privileged=True)},
    "CS304": {"second": env("NVIDIA_VISIBLE_DEVICES", "all")},
    "CS307": {"second": security(capabilities={"add": ["SYS_ADMIN"]})},
    "CS308": {"hostPID": True},
    "CS309": {"volumes": [{"name": "v", "hostPath": {"path": "/dev"}}]},
    "CS310": {"second": mount("/etc/ld.so.preload")},
}


@pytest.mark.parametrize("code", ESCAPES)
def test_each_rule_is_switched_off_by_namespace_and_no_other_with_it(code):
    document = pod(VGPU, **ESCAPES[code])
    assert codes(document) == [code]
    for namespace in ("n", "*"):
        assert codes(document, allow={namespace: frozenset({code})}) == []
    assert codes(document, allow={"other": frozenset({code})}) == [code]
    assert codes(document, allow={"n": frozenset(ESCAPES) - {code}}) == [code]


def test_the_older_switches_hold_everywhere():
    for code, fields in ESCAPES.items():
        document = pod(VGPU, **fields)
        assert codes(document, allow_privileged=True) == ([code] if code in {"CS304", "CS310"} else [])
        assert codes(document, allow_limit_overrides=True) == ([] if code in {"CS304", "CS310"} else [code])


def test_variables_are_allowed_by_name_and_by_prefix():
    document = pod(CHIP, main=env("ASCEND_ALLOW_LINK", "True"))
    assert codes(document) == ["CS304"]
    assert codes(document, allow_variables=("ASCEND_ALLOW_LINK",)) == []
    assert codes(document, allow_variables=("ASCEND_ALLOW_*",)) == []
    assert codes(document, allow_variables=("ASCEND_ALLOW",)) == ["CS304"]


def test_variables_from_elsewhere_are_warned_of():
    unseen = {"envFrom": [{"configMapRef": {"name": "c"}}]}
    for place in ("main", "second", "prepare"):
        verdict, _ = created(pod(VGPU, **{place: unseen}))
        (told,) = [one for one in verdict.warnings if one.code == "CS312"]
        assert (verdict.allowed, f'"{place}"' in told.text) == (True, True)
        assert len(f"CS312 {told.text}") < 256
    assert not created(pod(OTHER, main=unseen))[0].warnings
    assert not created(pod(VGPU, main=unseen), allow={"n": frozenset({"CS304"})})[0].warnings


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT"])
def test_libraries_that_are_loaded_before_the_limiting_one_are_warned_of(name):
    for place in ("main", "second", "prepare"):
        verdict, _ = created(pod(VGPU, **{place: env(name, "/x.so")}))
        (told,) = verdict.warnings
        assert (verdict.allowed, told.code, f'"{place}"' in told.text) == (True, "CS320", True)
        assert len(f"CS320 {told.text}") < 256
    document = pod(VGPU, main=env(name, "/x.so"))
    assert not created(document, allow={"n": frozenset({"CS304"})})[0].warnings
    assert not created(document, allow_variables=("LD_*",))[0].warnings
    assert not created(pod(OTHER, main=env(name, "/x.so")))[0].warnings


@pytest.mark.parametrize(
    ("scheduler", "found"),
    [("hami-scheduler", []), ("volcano", []), ("cardshare", ["CS304"]), ("", ["CS304"]), ("night", ["CS304"])],
)
def test_what_the_webhook_of_another_scheduler_wrote_is_let_be(scheduler, found):
    policy = env("GPU_CORE_UTILIZATION_POLICY", "disable")
    assert codes(pod(VGPU, main=policy, second=policy, schedulerName=scheduler)) == 2 * found
    # Nothing else that lifts a limit is its doing.
    assert codes(pod(VGPU, main=env("CUDA_DISABLE_CONTROL", "1"), schedulerName=scheduler)) == ["CS304"]


# What runtimes read, where the operator has it so


HIDDEN = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, {"name": "ASCEND_VISIBLE_DEVICES", "value": "void"}]


def test_containers_without_cards_are_shown_no_device():
    own = {"env": [{"name": "A", "value": "b"}]}
    _, stored = created(pod(VGPU, second=own, prepare={}), hide_devices=True)
    main, second = stored["spec"]["containers"]
    assert "env" not in main
    assert second["env"] == [*own["env"], *HIDDEN]
    assert stored["spec"]["initContainers"][0]["env"] == HIDDEN
    assert created(pod(OTHER, second=own), hide_devices=True)[1] == pod(OTHER, second=own)
    assert "env" not in created(pod(VGPU, second={}))[1]["spec"]["containers"][1]


def test_what_a_container_says_of_devices_itself_is_kept():
    _, stored = created(pod(VGPU, second=env("NVIDIA_VISIBLE_DEVICES", "none")), hide_devices=True)
    assert stored["spec"]["containers"][1]["env"] == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"},
        HIDDEN[1],
    ]
    nothing = {"env": None}
    assert created(pod(VGPU, second=nothing), hide_devices=True)[1]["spec"]["containers"][1]["env"] == HIDDEN


def test_a_manifest_without_these_variables_can_replace_the_pod():
    manifest = pod(VGPU, second={"env": [{"name": "A", "value": "b"}]})
    _, stored = created(manifest, hide_devices=True)
    for rules in (book(hide_devices=True), book()):
        verdict, patch = mutate(decode_review(request("Pod", manifest, stored)), rules)
        assert verdict.allowed
        assert jsonpatch.apply_patch(manifest, json.loads(patch))["spec"] == stored["spec"]


# Memory that has to be said


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"volcano.sh/vgpu-number": "4"}, "nothing"),
        ({"volcano.sh/vgpu-number": "4", "volcano.sh/vgpu-memory": "0"}, "'0'"),
        ({"volcano.sh/vgpu-cores": "10"}, "nothing"),
        ({"volcano.sh/vgpu-memory-percentage": "50"}, "nothing"),
        ({"huawei.com/Ascend310P": "1"}, "nothing"),
    ],
)
def test_where_memory_is_required_a_count_of_cards_is_not_enough(limits, found):
    assert codes(pod(limits)) == []
    assert codes(pod(limits), memory_required=frozenset({"other"})) == []
    for namespaces in ({"n"}, {"*"}):
        (violation,) = created(pod(limits), memory_required=frozenset(namespaces))[0].violations
        assert (violation.code, violation.found) == ("CS213", found)
        assert "namespace n" in violation.remedy
    assert on_template(pod(limits), memory_required=frozenset({"n"})) == ["CS213"]


@pytest.mark.parametrize(
    "limits",
    [
        VGPU,
        {"volcano.sh/vgpu-memory": "3000"},
        {"volcano.sh/gpu-memory": "1000"},
        {"volcano.sh/gpu-number": "1"},
        {"huawei.com/Ascend310P-memory": "3072", "huawei.com/Ascend310P": "1"},
        OTHER,
    ],
)
def test_who_says_how_much_memory_or_asks_where_none_is_counted_is_admitted(limits):
    assert codes(pod(limits), memory_required=frozenset({"*"})) == []


# Who places the pod


@pytest.mark.parametrize("name", ["", "default-scheduler", "cardshare", "volcano", "hami-scheduler"])
def test_known_schedulers_are_not_spoken_of(name):
    assert created(pod(VGPU, schedulerName=name))[0].warnings == ()


def test_a_scheduler_that_is_not_known_to_give_cards_is_warned_of():
    document = pod(VGPU, schedulerName="night")
    verdict, stored = created(document)
    assert (verdict.allowed, stored["spec"]["schedulerName"]) == (True, "night")
    assert [one.code for one in verdict.warnings] == ["CS314"]
    assert created(document, known_schedulers=("night",))[0].warnings == ()
    assert created(pod(OTHER, schedulerName="night"))[0].warnings == ()


# What is remembered


def test_pods_that_differ_in_what_is_judged_are_told_apart_and_others_are_not():
    def like(document):
        found = decode_review(request("Pod", document)).object
        assert found is not None
        return fingerprint(found, "n", "dana"), values_read(found)

    plain = like(pod(VGPU, second=env("RANK", "0")))
    assert like(pod(VGPU, second=env("RANK", "1"))) == plain
    different = [
        pod(VGPU, second=env("OTHER", "0")),
        pod(VGPU, second=env("RANK", "0"), hostPID=True),
        pod(VGPU, second=env("RANK", "0"), volumes=[{"name": "v", "hostPath": {"path": "/dev"}}]),
        pod(VGPU, second=env("NVIDIA_VISIBLE_DEVICES", "void")),
        pod(VGPU, second=env("NVIDIA_VISIBLE_DEVICES", "all")),
        pod(VGPU, second={**env("RANK", "0"), **mount("/etc/ld.so.preload")}),
        pod(VGPU, second={**env("RANK", "0"), "envFrom": [{}]}),
        pod(VGPU, second={**env("RANK", "0"), **security(capabilities={"add": ["ALL"]})}),
    ]
    assert len({plain, *map(like, different)}) == len(different) + 1
