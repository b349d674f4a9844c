"""Objects of which a part cannot be read: they keep no other from being read, and what they may use is not sold."""

import json

import pytest

from controller.watches import forgiving_nodes, forgiving_pods
from core.errors import InvalidRequestError
from core.model import NodeName
from core.wire.nodes import salvage_node
from core.wire.pods import decode_pod, salvage_pod
from kube.calls import page_decoder
from kube.errors import UndecodableError
from kube.reflector import Changed, event_decoder
from tests.support.worlds.world import World, node, pod

SHARE = "volcano.sh/vgpu-number"


def raw_pod(name, *, on="", phase="Running", **container):
    # A time that no clock shows is what the API server would never store, and stands for all that we cannot read.
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "5"}
    bad = {**meta, "creationTimestamp": "the day before"}
    spec = {"nodeName": on, "schedulerName": "cardshare", "containers": [{"name": "c", **container}]}
    return {"metadata": bad, "spec": spec, "status": {"phase": phase}}


def asking(name, **options):
    return raw_pod(name, resources={"limits": {SHARE: "1"}}, **options)


def listed(*objects):
    return json.dumps({"metadata": {"resourceVersion": "9"}, "items": objects}).encode()


def changed(decode, obj):
    found = decode(json.dumps({"type": "MODIFIED", "object": obj}).encode())
    assert isinstance(found, Changed)
    return found.value


def test_one_pod_that_cannot_be_read_keeps_no_other_of_its_list_from_being():
    world = World(node("n1"))
    decode = forgiving_pods(world.scheduler)
    good = {"metadata": {"name": "good", "namespace": "default", "uid": "u"}, "spec": {"containers": []}}
    page = page_decoder(decode)(listed(asking("bad", on="n1"), good))
    assert [one.name for one in page.items] == ["bad", "good"]
    assert decode.salvaged == 1
    (told,) = world.announced()
    assert (told.reason, told.about.name, "creationTimestamp" in told.message) == ("ObjectUnreadable", "bad", True)


def test_a_bound_pod_that_cannot_be_read_closes_its_node_for_what_it_names_until_it_is_over():
    world = World(node("n1"))
    decode = event_decoder(forgiving_pods(world.scheduler))
    world.scheduler.pod_changed(changed(decode, asking("bad", on="n1")))
    world.announced()
    world.adds(pod("p"))
    assert world.binds() == []
    over = asking("bad", on="n1", phase="Failed")
    over["metadata"]["resourceVersion"] = "6"
    world.scheduler.pod_changed(changed(decode, over))
    world.passes(2.0)
    assert len(world.binds()) == 1


@pytest.mark.drifts(reason="the pod is told to the scheduler, and not shown by the world")
def test_a_bound_pod_that_cannot_be_read_and_names_no_shares_closes_nothing():
    world = World(node("n1"))
    world.scheduler.pod_changed(salvage_pod(json.dumps(raw_pod("bad", on="n1")).encode(), {SHARE}))
    world.adds(pod("p"))
    assert len(world.binds()) == 1


def test_a_pending_pod_that_cannot_be_read_is_nobody_s_to_place():
    world = World(node("n1"))
    world.scheduler.pod_changed(salvage_pod(json.dumps(asking("bad")).encode(), {SHARE}))
    assert (world.binds(), len(world.scheduler.cluster.queue)) == ([], 0)


def test_a_bound_pod_goes_on_holding_what_it_held_when_it_cannot_be_read_any_more():
    world = World(node("n1"))
    world.adds(pod("p", memory=9000))
    (bind,) = world.binds()
    world.shows_bound(bind)
    before = world.holders("n1")
    gone_bad = asking("p", on="n1")
    gone_bad["metadata"]["resourceVersion"] = "99"
    world.scheduler.pod_changed(salvage_pod(json.dumps(gone_bad).encode(), {SHARE}))
    world.adds(pod("q", memory=9000))
    assert (world.binds(), world.holders("n1")) == ([], before)


def test_a_node_that_cannot_be_read_offers_nothing_and_keeps_no_other_from_being_read():
    world = World(node("n1"))
    decode = forgiving_nodes(world.scheduler)
    bad = {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}, "spec": {"taints": "none"}}
    page = page_decoder(decode)(listed(bad, {"metadata": {"name": "n2"}}))
    assert [one.name for one in page.items] == ["n1", "n2"]
    world.scheduler.nodes.changed(page.items[0])
    world.adds(pod("p"))
    assert world.binds() == []
    assert NodeName("n1") in world.ledger.states
    assert world.announced()[0].reason == "ObjectUnreadable"


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"metadata":{"name":1}}', b"\xff", b"[" * 100_000])
def test_what_does_not_even_say_which_it_is_cannot_be_salvaged(text):
    with pytest.raises(InvalidRequestError):
        salvage_pod(text, ())
    with pytest.raises(InvalidRequestError):
        salvage_node(text)
    if text != b"{}":
        with pytest.raises(UndecodableError):
            page_decoder(forgiving_pods(World().scheduler))(
                b'{"metadata":{"resourceVersion":"9"},"items":[' + text + b"]}"
            )


def test_the_example_of_these_tests_is_what_cannot_be_read():
    with pytest.raises(InvalidRequestError):
        decode_pod(json.dumps(asking("bad")).encode())
