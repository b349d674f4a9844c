import json

import pytest

from core.errors import InvalidRequestError
from core.model import (
    NO_PEERS,
    NO_VOLUMES,
    NO_WISHES,
    Disk,
    NodeConstraints,
    PeerTerm,
    PeerTerms,
    Phase,
    PodVolumes,
    Requirement,
    Spread,
    Toleration,
    Wishes,
)
from core.wire.pods import decode_pod, pod_from_object


def pod(spec=None, status=None, **meta):
    return pod_from_object(
        {
            "metadata": {"name": "p", "namespace": "n", **meta},
            "spec": spec or {},
            "status": status or {},
        }
    )


def container(**fields):
    return {"name": "main", **fields}


def test_everything_that_placing_needs_is_read():
    text = json.dumps(
        {
            "kind": "Pod",
            "metadata": {
                "name": "p",
                "namespace": "n",
                "uid": "u1",
                "resourceVersion": "7",
                "labels": {"app": "x"},
                "annotations": {"volcano.sh/vgpu-mode": "mig"},
                "creationTimestamp": "1970-01-01T00:01:00Z",
                "ownerReferences": [{"kind": "Node", "name": "no"}, {"kind": "Job", "name": "j", "controller": True}],
            },
            "spec": {
                "schedulerName": "cardshare",
                "nodeName": "node-a",
                "priority": 5,
                "overhead": {"cpu": "250m"},
                "containers": [
                    container(
                        resources={"limits": {"volcano.sh/vgpu-number": "1"}, "requests": {"cpu": "1"}},
                        env=[{"name": "A", "value": "1"}],
                        securityContext={"privileged": True},
                        ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}, {"containerPort": 81}],
                    )
                ],
                "initContainers": [container(restartPolicy="Always")],
            },
            "status": {
                "phase": "Running",
                "reason": "Odd",
                "conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "no room"}],
            },
        }
    )
    found = decode_pod(text.encode())
    assert (found.uid, found.key, found.resource_version) == ("u1", "n/p", "7")
    assert (found.labels, found.annotations) == ({"app": "x"}, {"volcano.sh/vgpu-mode": "mig"})
    assert (found.scheduler_name, found.node_name, found.priority) == ("cardshare", "node-a", 5)
    assert (found.created_s, found.owner, found.phase) == (60, "Job/j", Phase.RUNNING)
    assert (found.status_reason, found.scheduled_reason, found.scheduled_message) == ("Odd", "Unschedulable", "no room")
    assert found.overhead == {"cpu": "250m"}
    main = found.containers[0]
    assert (main.limits, main.requests) == ({"volcano.sh/vgpu-number": "1"}, {"cpu": "1"})
    assert main.host_ports == (("TCP", "10.0.0.1", 80),)
    assert found.init_containers[0].sidecar
    assert found.unjudged == ()


def test_null_fields_are_absent_fields():
    found = decode_pod(
        b'{"metadata":{"name":"p","labels":null,"annotations":null,"creationTimestamp":null,"ownerReferences":null},'
        b'"spec":{"containers":null,"nodeSelector":null,"affinity":null,"tolerations":null,"volumes":null},"status":null}'
    )
    assert (found.labels, found.annotations, found.containers, found.created_s) == ({}, {}, (), 0)
    assert found.phase is Phase.PENDING


def test_numbers_in_a_manifest_are_quantities():
    found = pod({"containers": [container(resources={"limits": {"volcano.sh/gpu-memory": 1024, "cpu": 0.5}})]})
    assert found.containers[0].limits == {"volcano.sh/gpu-memory": "1024", "cpu": "0.5"}


def test_constraints_are_those_of_the_api():
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": []},
    ]
    found = pod(
        {
            "nodeSelector": {"b": "2", "a": "1"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "tolerations": [{"key": "k", "effect": "NoSchedule"}],
        }
    ).constraints
    assert found.selector == (("a", "1"), ("b", "2"))
    assert found.affinity == ((Requirement(key="zone", operator="In", values=("a", "b")),),)
    assert found.tolerations == (Toleration(key="k", operator="Equal", effect="NoSchedule"),)


def test_fields_stand_beside_expressions_of_a_term():
    terms = [{**FIELDS["nodeSelectorTerms"][0], "matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert pod({"affinity": affinity}).constraints.affinity == (
        (
            Requirement(key="zone", operator="Exists"),
            Requirement(key="metadata.name", operator="In", values=("a",), of_field=True),
        ),
    )


def test_what_is_asked_for_the_whole_pod_is_its_request_or_else_its_limit():
    found = pod({"resources": {"requests": {"cpu": "32"}, "limits": {"cpu": "64", "memory": "1Gi"}}})
    assert found.resources == {"cpu": "32", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("status", "conditions", "cpu"),
    [
        pytest.param({}, [], "2", id="as asked"),
        pytest.param({"allocatedResources": {"cpu": "4"}}, [], "4", id="it is to become smaller"),
        pytest.param({"allocatedResources": {"cpu": "1000m"}}, [], "2", id="it is to become larger"),
        pytest.param(
            {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "8"}}}, [], "8", id="not shrunk yet"
        ),
        pytest.param({"resources": {"requests": {"cpu": "8"}}}, [], "8", id="only what is in use is told"),
        pytest.param({"resources": {"limits": {"cpu": "8"}}}, [], "2", id="limits are not counted"),
        pytest.param(
            {"allocatedResources": {"cpu": "1"}},
            [{"type": "PodResizePending", "reason": "Infeasible"}],
            "1",
            id="it can never become larger",
        ),
        pytest.param(
            {"allocatedResources": {"cpu": "1"}},
            [{"type": "PodResizePending", "reason": "Deferred"}],
            "2",
            id="it may become larger later",
        ),
    ],
)
def test_a_container_counts_with_what_kubelet_gave_it_while_it_is_resized(status, conditions, cpu):
    asked = {"containers": [container(resources={"requests": {"cpu": "2"}})]}
    name = asked["containers"][0]["name"]
    statuses = {"containerStatuses": [{"name": name, **status}], "conditions": conditions}
    assert pod(asked, statuses).containers[0].requests == {"cpu": cpu}


@pytest.mark.parametrize(
    ("status", "whole"),
    [
        pytest.param({}, {"cpu": "2", "memory": "1Gi"}, id="as asked"),
        pytest.param(
            {"resources": {"requests": {"cpu": "4100m", "memory": "1Gi"}}},
            {"cpu": "4000m", "memory": str(2**30)},
            id="not shrunk yet",
        ),
        pytest.param({"allocatedResources": {"cpu": "8"}}, {"cpu": "7900m", "memory": "1Gi"}, id="allocated"),
        pytest.param(
            {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1500m"}}},
            {"cpu": "2000m", "memory": "1Gi"},
            id="it is to become larger",
        ),
        pytest.param(
            {
                "allocatedResources": {"cpu": "1"},
                "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
            },
            {"cpu": "900m", "memory": "1Gi"},
            id="it can never become larger",
        ),
        pytest.param(
            {"resources": {"requests": {"hugepages-2Mi": "4Mi", "cpu": "50m"}}},
            {"cpu": "2000m", "memory": "1Gi", "hugepages-2Mi": str(4 * 2**20)},
            id="huge pages, and less than the overhead",
        ),
    ],
)
def test_a_whole_pod_counts_with_what_kubelet_gave_it_while_it_is_resized(status, whole):
    asked = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}, "overhead": {"cpu": "100m"}}
    assert pod(asked, status).resources == whole


def test_what_kubelet_tells_of_a_pod_that_asks_nothing_as_a_whole_is_not_counted_twice():
    told = {"resources": {"requests": {"cpu": "8"}}, "allocatedResources": {"cpu": "8"}}
    assert pod({"containers": [container()]}, told).resources == {}


def test_an_affinity_without_a_usable_term_matches_nothing():
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity: dict[str, object] = {"nodeAffinity": {key: {"nodeSelectorTerms": [{}]}}}
    assert pod({"affinity": affinity}).constraints.affinity == ()
    assert pod().constraints.affinity is None


TERM = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {
            "topologyKey": "zone",
            "labelSelector": {
                "matchLabels": {"app": "db"},
                "matchExpressions": [{"key": "rev", "operator": "Exists"}],
            },
            "namespaces": ["a"],
            "namespaceSelector": {},
            "matchLabelKeys": ["hash"],
            "mismatchLabelKeys": ["tenant"],
        },
        {"topologyKey": "host"},
    ]
}
MEANT = (
    PeerTerm(
        topology_key="zone",
        selector=(Requirement(key="app", operator="In", values=("db",)), Requirement(key="rev", operator="Exists")),
        namespaces=("a",),
        namespace_selector=(),
        label_keys=("hash",),
        other_label_keys=("tenant",),
    ),
    PeerTerm(topology_key="host"),
)
FIELDS: dict[str, list[dict[str, object]]] = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"affinity": {"podAntiAffinity": PREFERRED, "podAffinity": PREFERRED}}, ()),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        ({"volumes": [{"emptyDir": {}}, {"configMap": {}}, {"hostPath": {}}]}, ()),
        ({"resourceClaims": [{"name": "c"}, {"name": "d"}]}, ("resource claim 'c'", "resource claim 'd'")),
        ({"workloadRef": {"name": "w", "podGroup": "workers"}}, ("spec.workloadRef",)),
    ],
)
def test_what_no_rule_decides_is_named(spec, names):
    assert pod(spec).unjudged == names


def test_volumes_are_read_as_claims_and_disks():
    disks = [
        {"name": "a", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
        {"name": "b", "awsElasticBlockStore": {"volumeID": "d", "readOnly": True}},
        {"name": "c", "rbd": {"monitors": ["m", "n"], "image": "d"}},
        {"name": "d", "iscsi": {"iqn": "d", "lun": 1}},
    ]
    claims = [{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "y", "ephemeral": {}}]
    found = pod({"volumes": [*disks, *claims, {"name": "z", "emptyDir": {}}]})
    assert found.volumes == PodVolumes(
        claims=("c",),
        ephemeral=("y",),
        disks=(
            Disk("a", ("gcePersistentDisk d",), read_only=True),
            Disk("b", ("awsElasticBlockStore d",)),
            Disk("c", ("rbd m rbd/d", "rbd n rbd/d")),
            Disk("d", ("iscsi d",)),
        ),
    )
    assert not found.unjudged
    assert pod({"volumes": [{"name": "z", "emptyDir": {}}]}).volumes is NO_VOLUMES


def test_terms_about_other_pods_are_read_as_written():
    found = pod({"affinity": {"podAffinity": TERM, "podAntiAffinity": {**TERM, **PREFERRED}}}).peers
    assert found == PeerTerms(affinity=MEANT, anti_affinity=MEANT)
    assert pod({"affinity": {"podAntiAffinity": TERM}}).peers is pod({"affinity": {"podAntiAffinity": TERM}}).peers
    assert pod({"affinity": {"podAntiAffinity": PREFERRED}}).peers == NO_PEERS


def test_preferences_are_read_as_written():
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    term, *_ = TERM["requiredDuringSchedulingIgnoredDuringExecution"]
    asked = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 3, "preference": {"matchExpressions": [expression]}},
                    {"weight": 9, "preference": {}},
                ]
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]
            },
        },
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}],
    }
    found = pod(asked)
    assert found.wishes == Wishes(
        nodes=((3, (Requirement(key="zone", operator="In", values=("a",)),)),),
        near=((5, MEANT[0]), (-7, MEANT[0])),
        spread=(Spread(topology_key="zone", max_skew=2),),
    )
    assert (found.peers, found.constraints) == (NO_PEERS, NodeConstraints())
    assert pod(asked).wishes is pod(asked).wishes
    assert pod({}).wishes is NO_WISHES


def test_of_spread_constraints_those_are_read_that_refuse_nodes():
    plain = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    full = {
        **plain,
        "labelSelector": {"matchLabels": {"app": "db"}},
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["hash"],
    }
    soft = {**plain, "whenUnsatisfiable": "ScheduleAnyway"}
    assert pod({"topologySpreadConstraints": [plain, soft, full]}).peers.spread == (
        Spread(topology_key="zone", max_skew=2),
        Spread(
            topology_key="zone",
            max_skew=2,
            selector=(Requirement(key="app", operator="In", values=("db",)),),
            min_domains=3,
            by_affinity=False,
            by_taints=True,
            label_keys=("hash",),
        ),
    )


@pytest.mark.parametrize(
    ("statuses", "started"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}, "started": False}]}, False),
        ({"containerStatuses": [{"state": {"running": {}}}]}, True),
        ({"containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}, True),
        ({"containerStatuses": [{"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}]}, True),
        ({"initContainerStatuses": [{"started": True}]}, True),
        ({}, False),
    ],
)
def test_a_pod_has_started_once_any_container_ran(statuses, started):
    assert pod(status=statuses).started is started


def ended(name, exit_code=0):
    return {"name": name, "state": {"terminated": {"exitCode": exit_code}}}


@pytest.mark.parametrize(
    ("statuses", "rules", "done"),
    [
        ([ended("i")], [], True),
        ([ended("i", 1)], [], False),
        ([], [], False),
        ([ended("i")], [{"action": "Restart"}], True),
        ([ended("i")], [{"action": "RestartAllContainers"}], False),
    ],
    ids=["ended", "failed", "not begun", "another container restarts", "all run again"],
)
def test_init_containers_are_done_once_they_ended_and_none_runs_again(statuses, rules, done):
    spec = {
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "restartPolicyRules": rules}],
    }
    assert pod(spec, status={"initContainerStatuses": statuses}).init_done is done


def test_deleting_and_gated_pods_say_so():
    found = pod({"schedulingGates": [{"name": "g"}]}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert (found.deleting, found.gated) == (True, True)


def test_an_unknown_phase_is_unknown():
    assert pod(status={"phase": "Odd"}).phase is Phase.UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"metadata":{"name":5}}',
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{"creationTimestamp":"0001-01-01T00:00:00"}}',
        b'{"spec":' + b'{"x":' * 200_000,
        b'{"x":' + b"[" * 200_000,
        b'{"spec":{"containers":{}}}',
    ],
    ids=["empty", "null", "list", "cut", "number", "not-utf8", "no-zone", "deep", "deep-unknown", "object-for-list"],
)
def test_what_is_no_pod_is_refused_as_the_writers_text(text):
    with pytest.raises(InvalidRequestError):
        decode_pod(text)


def test_a_refusal_names_the_place():
    with pytest.raises(InvalidRequestError) as caught:
        decode_pod(b'{"spec":{"nodeName":5}}')
    assert caught.value.field == "pod spec.nodeName"


def test_pods_of_a_workload_share_what_they_repeat():
    spec = {
        "containers": [container(resources={"limits": {"cpu": "1"}})],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    }
    one, two = pod(spec, labels={"app": "x"}), pod(spec, labels={"app": "x"})
    assert one.containers[0] is two.containers[0]
    assert one.constraints is two.constraints
    assert one.labels is two.labels


def test_long_texts_are_read_and_not_kept_for_others():
    spec = {
        "containers": [container(name="c" * 5_000)],
        "tolerations": [{"key": "k" * 5_000, "operator": "Exists"}],
    }
    one, two = pod(spec, labels={"app": "x" * 5_000}), pod(spec, labels={"app": "x" * 5_000})
    assert one == two
    assert one.containers[0] is not two.containers[0]
    assert one.constraints is not two.constraints
    assert one.labels is not two.labels


@pytest.mark.parametrize("names", [1, 200], ids=["short", "longer than what is remembered"])
def test_a_spec_that_was_seen_before_is_read_as_it_is_now(names):
    env = [{"name": f"A_VARIABLE_OF_SOME_LENGTH_{at}"} for at in range(names)]
    spec = {"containers": [container(env=env)], "schedulerName": "cardshare", "priority": 3}
    meta = {"name": "p", "namespace": "n", "annotations": {"a": "1"}}
    pending = {"metadata": meta, "spec": spec}
    shown = {"metadata": {**meta, "annotations": {"a": "2"}}, "spec": spec, "status": {"phase": "Running"}}
    bound = {"metadata": meta, "spec": {**spec, "nodeName": "n1"}}
    for found in (pending, shown, bound, {"metadata": meta}, pending):
        assert decode_pod(json.dumps(found).encode()) == pod_from_object(found)
