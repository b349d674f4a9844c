from core.groups import is_leaving
from core.model import GroupKey, GroupKind, Pod, PodUid, group_of
from core.wire.pods import decode_pod

VOLCANOS = {"scheduling.k8s.io/group-name": "v"}
COSCHEDULINGS = {"scheduling.x-k8s.io/pod-group": "c"}


def pod(**fields):
    return Pod(uid=PodUid("u"), namespace="ml", name="p", **fields)


def test_a_pod_is_a_member_of_the_first_group_that_names_it():
    assert group_of(pod()) is None
    assert group_of(pod(labels=COSCHEDULINGS)) == GroupKey(GroupKind.COSCHEDULING, "ml", "c")
    assert group_of(pod(scheduling_group="n")) == GroupKey(GroupKind.NATIVE, "ml", "n")
    # The Job controller of Kubernetes 1.37 names one for every pod.
    assert group_of(pod(labels=COSCHEDULINGS, scheduling_group="n")) == GroupKey(GroupKind.COSCHEDULING, "ml", "c")
    assert group_of(pod(scheduling_group="n", annotations=VOLCANOS)) == GroupKey(GroupKind.VOLCANO, "ml", "v")


def test_the_group_of_a_pods_spec_is_read():
    text = b'{"metadata":{"name":"p","namespace":"ml"},"spec":{"schedulingGroup":{"podGroupName":"n"}}}'
    assert decode_pod(text).scheduling_group == "n"


def test_a_pod_that_its_controller_is_about_to_delete_is_leaving():
    assert is_leaving(pod(deleting=True))
    assert is_leaving(pod(annotations={"volcano.sh/controller-out-of-sync": "true"}))
    assert not is_leaving(pod(annotations={"volcano.sh/controller-out-of-sync": ""}))
