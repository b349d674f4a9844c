"""What a pod needs that not every kubelet can do: it goes where that is declared, and waits where it is nowhere."""

from dataclasses import replace

import pytest

from core.explaining import explain
from core.settings import Policy
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from tests.support.worlds.world import World, node, pod

RESTARTS = "RestartAllContainersOnContainerExits"
RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


def features_of(**spec):
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return pod_from_object({"metadata": {"name": "p", "namespace": "d"}, "spec": spec}).features


OCI = {"seccompProfile": {"type": "OCI"}}


def certificate(key_type):
    sources = [{"serviceAccountToken": {"path": "token"}}, {"podCertificate": {"keyType": key_type}}]
    return {"name": "v", "projected": {"sources": sources}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param({"containers": [{"name": "c", "restartPolicyRules": [RULE]}]}, (RESTARTS,), id="a restart rule"),
        pytest.param(
            {"initContainers": [{"name": "c", "restartPolicyRules": [RULE]}]}, (RESTARTS,), id="of the init phase"
        ),
        pytest.param(
            {"containers": [{"name": "c", "restartPolicyRules": [{**RULE, "action": "Restart"}]}]},
            (),
            id="a rule for one container",
        ),
        pytest.param(
            {"hostNetwork": True, "hostUsers": False}, ("UserNamespacesHostNetworkSupport",), id="users of its own"
        ),
        pytest.param({"hostNetwork": True}, (), id="the users of the host"),
        pytest.param({"hostUsers": False}, (), id="a network of its own"),
        pytest.param(
            {"containers": [{"name": "c", "volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}]},
            ("VolumeBindMountOptions",),
            id="options of a mount",
        ),
        pytest.param({"volumes": [certificate("MLDSA65")]}, ("PodCertificateMLDSA",), id="a certificate of a new key"),
        pytest.param({"volumes": [certificate("ED25519")]}, (), id="a certificate of a known key"),
        pytest.param({"securityContext": OCI}, ("SecurityProfileOCI",), id="a profile of a registry"),
        pytest.param(
            {"initContainers": [{"name": "c", "securityContext": OCI}]},
            ("SecurityProfileOCI",),
            id="a container's profile of a registry",
        ),
        pytest.param({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}, (), id="another profile"),
    ],
)
def test_what_a_pod_needs_is_inferred_as_kube_scheduler_does(spec, found):
    assert features_of(**spec) == found


def test_what_a_node_declares_is_read():
    found = node_from_object({"metadata": {"name": "n"}, "status": {"declaredFeatures": [RESTARTS]}})
    assert found.features == (RESTARTS,)


def test_a_pod_goes_where_what_it_needs_is_declared():
    world = World(node("n0"), node("n1", features=(RESTARTS,)))
    world.adds(pod("p", features=(RESTARTS,)))
    assert world.placed() == {"p": "n1"}


def test_a_pod_waits_until_a_node_declares_what_it_needs():
    world = World(node("n0"))
    world.adds(pod("p", features=(RESTARTS,)))
    assert world.placed() == {}
    shape = world.entry("p").shape
    assert shape is not None
    refused = explain.refused(world.ledger, shape, Policy.BINPACK)
    assert f"1 no declared feature {RESTARTS}" in explain.wait(refused).text
    world.scheduler.nodes.changed(replace(node("n0", version="2"), features=(RESTARTS,)))
    world.passes(1.0)
    assert world.placed() == {"p": "n0"}
