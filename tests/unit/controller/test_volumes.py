"""Pods with volumes: where they go, what they are told, and what has them tried again."""

import pytest

from controller.actions import GiveVolume, SelectNode
from core.claims import Attachment, StorageKind
from core.explaining import explain
from core.groups import GroupSpec
from core.model import Disk, GroupKey, GroupKind, NodeName, PodUid, PodVolumes
from core.settings import Policy
from core.waiting import Cause
from core.wire.storage import (
    capacity_from_object,
    claim_from_object,
    class_from_object,
    csi_node_from_object,
    driver_from_object,
    volume_from_object,
)
from tests.support.worlds.world import World, node, pod

ZONE = "topology.kubernetes.io/zone"
DRIVER = "ebs.csi.aws.com"


def claim(name, volume="", *, once=False, storage_class="now", bound=True, **meta):
    return claim_from_object(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if volume and bound else {},
                **meta,
            },
            "spec": {
                "volumeName": volume,
                "storageClassName": storage_class,
                "accessModes": ["ReadWriteOncePod" if once else "ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Bound" if volume else "Pending"},
        }
    )


def volume(name, zone="", driver=""):
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    return volume_from_object(
        {
            "metadata": {"name": name},
            "spec": {
                **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if zone else {}),
                **({"csi": {"driver": driver, "volumeHandle": f"handle-{name}"}} if driver else {}),
            },
        }
    )


def limit(name, count):
    drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}]
    return csi_node_from_object({"metadata": {"name": name}, "spec": {"drivers": drivers}})


def storage(world, **objects):
    for kind in StorageKind:
        for _ in world.scheduler.claims.replaced(kind, objects.get(kind.name.lower(), ())):
            pass


def shows(world, kind, one):
    world.scheduler.claims.stores[kind].put(one)


def world_of(*names, **objects):
    world = World(*[node(name, labels={ZONE: name[0]}) for name in names])
    classes = [class_from_object({"metadata": {"name": "now"}, "provisioner": "p"}), *objects.pop("classes", ())]
    storage(world, classes=classes, **objects)
    return world


def mounting(name, *claims, ephemeral=(), disks=(), **fields):
    return pod(name, volumes=PodVolumes(claims, ephemeral, disks), **fields)


def waits(world, name):
    world.passes(0.1)
    wait = world.entry(name).wait
    assert wait is not None
    return wait


def refused(world, name):
    return explain.wait(explain.refused(world.ledger, world.entry(name).shape, Policy.BINPACK))


def test_a_pod_goes_where_the_volumes_of_its_claims_can_be_reached():
    world = world_of("a1", "b1", claims=[claim("data", "v")], volumes=[volume("v", zone="b")])
    world.adds(mounting("p", "data"))
    assert world.placed() == {"p": "b1"}


def test_a_volume_that_no_node_reaches_is_told_as_the_reason():
    world = world_of("a1", claims=[claim("data", "v")], volumes=[volume("v", zone="b")])
    world.adds(mounting("p", "data"))
    world.passes(0.1)
    assert not world.placed()
    assert "1 node affinity of a volume of the pod" in refused(world, "p").text
    world.scheduler.nodes.changed(node("b1", labels={ZONE: "b"}))
    world.passes(0.1)
    assert world.placed()["p"] == "b1"


def test_a_claim_that_is_missing_lost_or_going_is_told_by_name_and_its_coming_lets_the_pod_in():
    world = world_of("a1")
    world.adds(mounting("p", "data"))
    wait = waits(world, "p")
    assert wait.cause is Cause.CLAIM_NOT_FOUND
    assert "volume claim 'default/data' does not exist; create it" in wait.text
    for found, words in (
        (claim("data", "v", deletionTimestamp="2026-01-01T00:00:00Z"), "is being deleted"),
        (claim("data", "v"), "is bound to volume 'v', which does not exist"),
    ):
        shows(world, StorageKind.CLAIMS, found)
        assert words in waits(world, "p").text
    shows(world, StorageKind.VOLUMES, volume("v"))
    assert "p" in world.placed()


def test_a_claim_that_is_bound_at_once_is_waited_for():
    world = world_of("a1", volumes=[volume("v")], claims=[claim("data"), claim("named", "v", bound=False)])
    world.adds(mounting("p", "data"), mounting("q", "named"))
    assert waits(world, "p").cause is waits(world, "q").cause is Cause.CLAIM_NOT_BOUND
    shows(world, StorageKind.CLAIMS, claim("data", "v"))
    assert world.placed().keys() == {"p"}


def test_a_claim_for_one_pod_lets_the_next_in_once_the_first_is_gone():
    world = world_of("a1", volumes=[volume("v")], claims=[claim("data", "v", once=True)])
    world.adds(mounting("p", "data"), mounting("q", "data"))
    assert world.placed().keys() == {"p"}
    assert waits(world, "q").cause is Cause.CLAIM_IN_USE
    world.gone("p")
    world.passes(0.1)
    assert "q" in world.placed()


def test_members_of_a_gang_cannot_share_a_claim_for_one_pod():
    world = world_of("a1", "a2", volumes=[volume("v")], claims=[claim("data", "v", once=True)])
    world.groups_are(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="g", min_member=2))
    group = {"scheduling.k8s.io/group-name": "g"}
    world.adds(*[mounting(name, "data", annotations=group) for name in ("p", "q")])
    assert "pods that are placed together share it" in waits(world, "p").text
    assert not world.placed()


def test_members_of_a_gang_that_shared_a_claim_start_once_one_is_replaced_by_a_pod_with_its_own():
    claims = [claim("data", "v", once=True), claim("own", "w", once=True)]
    world = world_of("a1", "a2", volumes=[volume("v"), volume("w")], claims=claims)
    world.groups_are(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="g", min_member=2))
    group = {"scheduling.k8s.io/group-name": "g"}
    world.adds(*[mounting(name, "data", annotations=group) for name in ("p", "q")])
    world.passes(0.1)
    world.gone("q")
    assert "waits until 2 members of PodGroup default/g can be placed together" in waits(world, "p").text
    world.adds(mounting("r", "own", annotations=group))
    assert world.placed().keys() == {"p", "r"}


def test_an_ephemeral_volume_is_the_pods_own_claim():
    owner = {"uid": "uid-p", "kind": "Pod", "controller": True}
    world = world_of("a1", volumes=[volume("v")], claims=[claim("p-tmp", "v")])
    world.adds(mounting("p", ephemeral=("tmp",)))
    assert "was not created for this pod" in waits(world, "p").text
    shows(world, StorageKind.CLAIMS, claim("p-tmp", "v", ownerReferences=[owner]))
    assert "p" in world.placed()


def test_a_node_attaches_no_more_volumes_than_its_driver_says_each_counted_once():
    names = ("v1", "v2", "v3")
    world = world_of(
        "a1",
        volumes=[volume(name, driver=DRIVER) for name in names],
        claims=[claim(f"c-{name}", name) for name in names],
        nodes=[limit("a1", 2)],
    )
    world.adds(mounting("p", "c-v1"), mounting("q", "c-v1"), mounting("r", "c-v2"), mounting("s", "c-v3"))
    assert world.placed().keys() == {"p", "q", "r"}
    assert f"1 no capacity to attach volumes of {DRIVER}" in refused(world, "s").text
    assert "Wait until a1 has 1 fewer volumes" in refused(world, "s").text
    world.gone("p")
    world.passes(0.1)
    assert "s" not in world.placed()  # the other still has it attached
    world.gone("q")
    world.passes(0.1)
    assert "s" in world.placed()


def test_a_pod_is_let_in_by_another_that_has_its_volume_attached_there():
    names = ("v1", "v2")
    world = world_of(
        "a1",
        volumes=[volume(name, driver=DRIVER) for name in names],
        claims=[claim(f"c-{name}", name) for name in names],
        nodes=[limit("a1", 1)],
    )
    world.adds(mounting("r", "c-v2", scheduler_name="other", node_name="a1", limits={}))
    world.adds(mounting("p", "c-v1"))
    assert "p" not in world.placed()
    world.adds(mounting("q", "c-v1", scheduler_name="other", node_name="a1", limits={}))
    world.gone("r")
    world.passes(0.1)
    assert "p" in world.placed()


def test_a_limit_that_rises_lets_a_pod_in():
    world = world_of("a1", volumes=[volume("v", driver=DRIVER)], claims=[claim("data", "v")], nodes=[limit("a1", 0)])
    world.adds(mounting("p", "data"))
    world.passes(0.1)
    assert not world.placed()
    shows(world, StorageKind.NODES, limit("a1", 1))
    world.passes(0.1)
    assert "p" in world.placed()


def csi_driver(*, must_run):
    spec = {"preventPodSchedulingIfMissing": must_run}
    return driver_from_object({"metadata": {"name": DRIVER}, "spec": spec})


def running(name, *drivers):
    spec = {"drivers": [{"name": driver, "nodeID": name} for driver in drivers]}
    return csi_node_from_object({"metadata": {"name": name}, "spec": spec})


def test_a_volume_of_a_driver_that_must_run_is_used_where_it_does():
    world = world_of(
        "a1",
        "b1",
        volumes=[volume("v", driver=DRIVER)],
        claims=[claim("data", "v")],
        drivers=[csi_driver(must_run=True)],
        nodes=[running("a1", "other.csi")],
    )
    world.adds(mounting("p", "data"))
    world.passes(0.1)
    assert not world.placed()
    assert f"2 no CSI driver {DRIVER}" in refused(world, "p").text
    assert f"has CSI driver {DRIVER} installed" in refused(world, "p").text
    shows(world, StorageKind.NODES, running("b1", "other.csi", DRIVER))
    world.passes(0.1)
    assert world.placed() == {"p": "b1"}
    storage = world.ledger.volumes.storage
    world.scheduler.claims.stores[StorageKind.NODES].drop(running("b1"))
    assert storage.running == {"a1": {"other.csi"}}


def test_a_driver_that_need_not_run_any_more_lets_its_pods_in():
    later = {"metadata": {"name": "later"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
    for gone in (False, True):
        world = world_of(
            "a1",
            claims=[claim("data", storage_class="later")],
            classes=[class_from_object(later)],
            drivers=[csi_driver(must_run=True)],
        )
        world.adds(mounting("p", "data"))
        world.passes(0.1)
        assert f"1 no CSI driver {DRIVER}" in refused(world, "p").text
        if gone:
            world.scheduler.claims.stores[StorageKind.DRIVERS].drop(csi_driver(must_run=True))
        else:
            shows(world, StorageKind.DRIVERS, csi_driver(must_run=False))
        world.passes(0.1)
        assert world.entry("p").placement.node == "a1"


def test_a_volume_that_is_attached_still_counts_until_it_is_detached():
    left = Attachment("csi-1", NodeName("a1"), DRIVER, "gone")
    world = world_of(
        "a1",
        volumes=[volume(name, driver=DRIVER) for name in ("v", "gone")],
        claims=[claim("data", "v")],
        nodes=[limit("a1", 1)],
        attachments=[left, Attachment("csi-2", NodeName("a1"), "other.csi", "v")],
    )
    world.adds(mounting("p", "data"))
    world.passes(0.1)
    assert not world.placed()
    assert f"1 no capacity to attach volumes of {DRIVER}" in refused(world, "p").text
    world.scheduler.claims.stores[StorageKind.ATTACHMENTS].drop(left)
    world.passes(0.1)
    assert "p" in world.placed()
    storage = world.ledger.volumes.storage
    assert not storage.attached_to.get("gone")


def test_a_disk_that_stands_in_pods_is_written_by_one_of_a_node():
    world = world_of("a1")
    read, write = (Disk("d", ("rbd m rbd/i",), read_only=one) for one in (True, False))
    world.adds(mounting("p", disks=(read,)), mounting("q", disks=(read,)), mounting("r", disks=(write,)))
    assert world.placed().keys() == {"p", "q"}
    assert "1 disk of volume 'd' in use" in refused(world, "r").text
    world.gone("p")
    world.gone("q")
    world.passes(0.1)
    assert "r" in world.placed()


def test_without_storage_that_can_be_read_pods_with_claims_wait_and_others_do_not():
    world = World(node("a1"))
    world.adds(mounting("p", "data"), pod("q"))
    assert world.placed().keys() == {"q"}
    assert "could not list persistentvolumeclaims" in waits(world, "p").text
    storage(world, claims=[claim("data", "v")], volumes=[volume("v")])
    world.passes(0.1)
    assert "p" in world.placed()


# Claims that are bound once their pod has a node


def later(**fields):
    return class_from_object(
        {
            "metadata": {"name": "later"},
            "provisioner": "p",
            "volumeBindingMode": "WaitForFirstConsumer",
            **fields,
        }
    )


def waiting_claim(name="data", node_name="", version="7"):
    told = {"volume.kubernetes.io/selected-node": node_name} if node_name else {}
    return claim(name, storage_class="later", annotations=told, resourceVersion=version)


def later_world(*names, storage_class=None, claims=None, settings=None, **objects):
    world = World(*[node(name, labels={ZONE: name[0]}) for name in names], **(settings or {}))
    claims = [waiting_claim()] if claims is None else claims
    storage(world, classes=[storage_class or later()], claims=claims, **objects)
    return world


def provisions(world, key="data", zone="", name="made"):
    """The volume is made and the claim bound to it, as the provisioner and the volume controller do it."""
    shows(world, StorageKind.VOLUMES, volume(name, zone=zone))
    shows(world, StorageKind.CLAIMS, claim(key, name, storage_class="later"))
    world.passes(0.1)


def test_a_claim_is_told_the_node_and_the_pod_is_bound_once_it_is():
    world = later_world("a1")
    world.adds(mounting("p", "data"))
    assert not world.binds()
    (told,) = world.actions(SelectNode)
    assert (told.claim.key, told.node, told.claim.version) == ("default/data", "a1", "7")
    assert waits(world, "p").cause is Cause.WAITING_FOR_VOLUMES
    assert world.holders("a1") == {"uid-p"}
    shows(world, StorageKind.CLAIMS, waiting_claim(node_name="a1", version="8"))
    assert not world.binds()
    provisions(world, zone="a")
    assert world.placed() == {"p": "a1"}


def test_a_member_waits_for_no_volume_while_too_few_of_its_gang_have_a_place():
    world = later_world("a1", "a2")
    world.groups_are(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="g", min_member=2))
    world.adds(pod("before-1", memory=6_000), pod("before-2", memory=6_000))
    for bind in world.binds():
        world.accepts(bind)
    group = {"scheduling.k8s.io/group-name": "g"}
    world.adds(mounting("p", "data", memory=4_000, annotations=group), pod("q", memory=4_000, annotations=group))
    world.plan()
    assert [world.stage(name) for name in ("p", "q")] == ["preparing", "turn"]
    (told,) = world.actions(SelectNode)
    shows(world, StorageKind.CLAIMS, waiting_claim(node_name=told.node, version="8"))
    name = world.ledger.node_of(PodUid("uid-q"))
    world.scheduler.nodes.changed(node(name, version="2", labels={ZONE: "a"}, unschedulable=True))
    world.passes(1.0)
    assert [world.stage(name) for name in ("p", "q")] == ["refused", "refused"]
    assert [one.node for one in world.actions(SelectNode)] == [""]


def test_a_provisioner_that_gives_up_has_the_pod_decided_anew():
    world = later_world("a1")
    world.adds(mounting("p", "data"))
    world.plan()
    world.actions(SelectNode)
    shows(world, StorageKind.CLAIMS, waiting_claim(node_name="a1", version="8"))
    world.passes(0.6)
    shows(world, StorageKind.CLAIMS, waiting_claim(version="9"))
    wait = waits(world, "p")
    assert wait.cause is Cause.VOLUMES_NOT_BOUND
    assert "its provisioner failed to provide" in wait.text
    assert not world.holders("a1")
    world.passes(2.0)
    (again,) = world.actions(SelectNode)
    assert (again.node, again.claim.version) == ("a1", "9")


def test_a_provisioner_that_is_silent_is_waited_for_no_longer_than_is_set():
    world = later_world("a1", settings={"volume_wait_max_s": 10.0})
    world.adds(mounting("p", "data"))
    world.plan()
    world.actions(SelectNode)
    shows(world, StorageKind.CLAIMS, waiting_claim(node_name="a1", version="8"))
    world.passes(9.0)
    assert waits(world, "p").cause is Cause.WAITING_FOR_VOLUMES
    world.passes(1.0)
    assert "was not bound on a1 within 10 s" in waits(world, "p").text
    (undone,) = world.actions(SelectNode)
    assert (undone.node, undone.claim.version) == ("", "8")
    assert not world.holders("a1")


def test_a_pod_that_goes_meanwhile_leaves_no_node_on_its_claim():
    world = later_world("a1")
    world.adds(mounting("p", "data"))
    world.plan()
    world.actions(SelectNode)
    shows(world, StorageKind.CLAIMS, waiting_claim(node_name="a1", version="8"))
    world.gone("p")
    world.passes(0.6)
    assert [one.node for one in world.actions(SelectNode)] == [""]


def test_a_process_that_begins_goes_on_with_the_node_that_a_claim_has():
    world = later_world("a1", "b1", claims=[waiting_claim(node_name="b1")])
    world.adds(mounting("p", "data"))
    world.plan()
    assert not world.actions(SelectNode)
    assert world.holders("b1") == {"uid-p"}
    provisions(world, zone="b")
    assert world.placed() == {"p": "b1"}


def test_a_node_that_does_not_take_the_pod_any_more_is_taken_back_from_its_claim():
    world = later_world("a1", claims=[waiting_claim(node_name="b1")], settings={"volume_wait_max_s": 10.0})
    world.adds(mounting("p", "data"))
    world.passes(1.0)
    assert not world.actions(SelectNode)
    world.passes(10.0)
    (undone,) = world.actions(SelectNode)
    assert undone.node == ""
    shows(world, StorageKind.CLAIMS, waiting_claim(version="9"))
    world.passes(0.6)
    assert [one.node for one in world.actions(SelectNode)] == ["a1"]


def test_a_write_that_is_refused_has_the_pod_decided_anew():
    world = later_world("a1")
    world.adds(mounting("p", "data"))
    world.plan()
    (told,) = world.actions(SelectNode)
    world.scheduler.prebind.failed(told, "it changed meanwhile")
    assert "could not be written: it changed meanwhile" in waits(world, "p").text
    world.passes(2.0)
    assert [one.node for one in world.actions(SelectNode)] == ["a1"]


def test_a_volume_that_is_made_elsewhere_takes_the_pod_along():
    world = later_world("a1", "b1")
    world.adds(mounting("p", "data"))
    world.plan()
    (told,) = world.actions(SelectNode)
    other = "b" if told.node == "a1" else "a"
    provisions(world, zone=other)
    assert world.placed() == {"p": f"{other}1"}


def test_a_class_is_heeded_where_it_makes_volumes_and_how_large_they_may_be():
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}]
    world = later_world(
        "a1",
        "b1",
        "c1",
        storage_class=later(allowedTopologies=topologies),
        drivers=[driver_from_object({"metadata": {"name": "p"}, "spec": {"storageCapacity": True}})],
        capacities=[capacity("in-b", "b", "512Mi"), capacity("in-c", "c", "2Gi"), capacity("in-a", "a", "2Gi")],
    )
    world.adds(mounting("p", "data"))
    world.plan()
    assert [one.node for one in world.actions(SelectNode)] == ["c1"]


def test_a_driver_with_more_room_than_can_be_counted_has_room():
    # CSI drivers of network file systems report the largest number; 8Ei is 2^63.
    world = later_world(
        "a1",
        drivers=[driver_from_object({"metadata": {"name": "p"}, "spec": {"storageCapacity": True}})],
        capacities=[capacity("in-a", "a", "8Ei")],
    )
    world.adds(mounting("p", "data"))
    world.plan()
    assert [one.node for one in world.actions(SelectNode)] == ["a1"]


def capacity(name, zone, size):
    return capacity_from_object(
        {
            "metadata": {"name": name, "namespace": "kube-system"},
            "storageClassName": "later",
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "capacity": size,
        }
    )


def local(name, zone, size="1Gi"):
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    return volume_from_object(
        {
            "metadata": {"name": name, "resourceVersion": "3"},
            "spec": {
                "storageClassName": "later",
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Available"},
        }
    )


def test_a_volume_that_is_there_is_given_to_the_claim_the_smallest_that_does():
    none = later(provisioner="kubernetes.io/no-provisioner")
    volumes = [local("big", "b", "3Gi"), local("right", "b", "2Gi"), local("small", "a", "512Mi")]
    world = later_world("a1", "b1", storage_class=none, volumes=volumes)
    world.adds(mounting("p", "data"))
    world.plan()
    assert not world.actions(SelectNode)
    (given,) = world.actions(GiveVolume)
    assert (given.volume.name, given.volume.version, given.claim.key) == ("right", "3", "default/data")
    shows(world, StorageKind.CLAIMS, claim("data", "right", storage_class="later"))
    world.passes(0.1)
    assert world.placed() == {"p": "b1"}


def test_a_volume_of_another_attributes_class_is_not_given_nor_one_that_is_reserved_but_too_small():
    none = later(provisioner="kubernetes.io/no-provisioner")
    fast = local("fast", "a")._replace(attributes_class="fast")
    small = local("small", "a", "512Mi")._replace(claim="default/data")
    world = later_world("a1", storage_class=none, volumes=[fast, small])
    world.adds(mounting("p", "data"))
    world.plan()
    assert not world.actions(GiveVolume)
    assert "no volume of storage class 'later' is free" in waits(world, "p").text
    asking = waiting_claim(version="8")._replace(attributes_class="fast")
    shows(world, StorageKind.CLAIMS, asking)
    world.passes(0.1)
    assert [one.volume.name for one in world.actions(GiveVolume)] == ["fast"]


def test_two_pods_are_not_promised_the_same_volume():
    none = later(provisioner="kubernetes.io/no-provisioner")
    world = later_world(
        "a1", storage_class=none, volumes=[local("v", "a")], claims=[waiting_claim(), waiting_claim("d2")]
    )
    world.adds(mounting("p", "data"), mounting("q", "d2"))
    world.plan()
    assert [one.claim.key for one in world.actions(GiveVolume)] == ["default/data"]
    assert "no volume of storage class 'later' is free" in waits(world, "q").text


def test_without_a_volume_or_a_provisioner_a_claim_is_told_to_be_unbound():
    world = later_world("a1", storage_class=later(provisioner="kubernetes.io/no-provisioner"))
    world.adds(mounting("p", "data"))
    assert waits(world, "p").cause is Cause.CLAIM_NOT_BOUND
    shows(world, StorageKind.VOLUMES, local("v", "a"))
    world.passes(0.1)
    assert [one.volume.name for one in world.actions(GiveVolume)] == ["v"]


def test_a_claim_that_another_pod_waits_for_there_keeps_its_node():
    world = later_world("a1")
    world.adds(mounting("p", "data"), mounting("q", "data"))
    world.plan()
    assert {one.node for one in world.actions(SelectNode)} == {"a1"}
    shows(world, StorageKind.CLAIMS, waiting_claim(node_name="a1", version="8"))
    world.passes(0.6)
    world.gone("q")
    world.passes(0.6)
    assert not world.actions(SelectNode)
    world.gone("p")
    world.passes(0.6)
    assert [one.node for one in world.actions(SelectNode)] == [""]


def test_a_volume_that_another_pod_waits_for_stays_promised_to_its_claim():
    none = later(provisioner="kubernetes.io/no-provisioner")
    world = later_world(
        "a1", storage_class=none, volumes=[local("v", "a")], claims=[waiting_claim(), waiting_claim("d2")]
    )
    world.adds(mounting("p", "data"), mounting("q", "data"), mounting("r", "d2"))
    world.plan()
    world.gone("q")
    world.passes(0.6)
    assert {one.claim.key for one in world.actions(GiveVolume)} == {"default/data"}
    world.gone("p")
    world.passes(0.6)
    assert [one.claim.key for one in world.actions(GiveVolume)] == ["default/d2"]


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_volume_is_free_again_once_its_claim_is_given_another_on_another_node(is_gone):
    none = later(provisioner="kubernetes.io/no-provisioner")
    volumes, claims = [local("v-a", "a"), local("v-b", "b")], [waiting_claim(), waiting_claim("d2")]
    world = later_world("a1", "b1", storage_class=none, volumes=volumes, claims=claims)
    world.adds(mounting("p", "data"))
    world.plan()
    world.passes(0.1)
    (first,) = world.actions(GiveVolume)
    name, labels = f"{first.volume.name[-1]}1", {ZONE: first.volume.name[-1]}
    if is_gone:
        world.scheduler.nodes.gone(name)
        world.passes(0.6)
        assert f"node {name} does not exist any more" in waits(world, "p").text
        world.passes(2.0)
    else:
        world.scheduler.nodes.changed(node(name, labels=labels, version="98", unschedulable=True))
        world.scheduler.reservations.release(world.entry("p"))
        world.scheduler.pending.read(world.entry("p"))
        world.plan()
    (second,) = world.actions(GiveVolume)
    assert second.volume != first.volume
    world.scheduler.nodes.changed(node(name, labels=labels, version="99"))
    world.adds(mounting("q", "d2"))
    world.passes(1.0)
    assert [(one.claim.key, one.volume) for one in world.actions(GiveVolume)] == [("default/d2", first.volume)]


def claims_two(*names, volumes):
    """A pod with two claims, and a class that provisions none."""
    none = later(provisioner="kubernetes.io/no-provisioner")
    claims = [waiting_claim(), waiting_claim("log")]
    world = later_world(*names, storage_class=none, volumes=volumes, claims=claims)
    world.adds(mounting("p", "data", "log"))
    world.plan()
    return world


def test_a_pod_goes_where_each_of_its_claims_gets_a_volume_of_its_own():
    world = claims_two("a1", "b1", volumes=[local("a", "a"), local("b", "b"), local("c", "b")])
    given = {one.claim.key: one.volume.name for one in world.actions(GiveVolume)}
    assert given == {"default/data": "b", "default/log": "c"}


def test_two_claims_of_a_pod_that_find_one_volume_are_told_and_another_volume_lets_the_pod_in():
    world = claims_two("a1", volumes=[local("a", "a")])
    assert not world.actions(GiveVolume)
    told = refused(world, "p").text
    assert "1 too few volumes for the claims of the pod" in told
    assert "Wait until a1 has a free volume for each claim of the pod" in told
    shows(world, StorageKind.VOLUMES, local("b", "a"))
    world.passes(0.1)
    assert {one.volume.name for one in world.actions(GiveVolume)} == {"a", "b"}


def test_a_claim_that_names_a_node_where_its_class_provisions_nothing_is_told():
    none = later(provisioner="kubernetes.io/no-provisioner")
    world = later_world("a1", storage_class=none, volumes=[local("a", "a")], claims=[waiting_claim(node_name="a1")])
    world.adds(mounting("p", "data"))
    assert "provisions no volume on node 'a1'" in waits(world, "p").text
    world.passes(1000.0)
    assert [(one.claim.key, one.node) for one in world.actions(SelectNode)] == [("default/data", "")]
