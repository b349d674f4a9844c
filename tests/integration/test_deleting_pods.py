"""Pods that are being deleted: they have their cards until they are gone, and nobody says otherwise."""

from sandbox.client import PatchKind
from tests.integration.test_failing_plugins import SHARE, apply, pod, seen, with_fault
from tests.support.worlds import controller_rig as rigs
from tests.support.worlds.controller_rig import PODS

NODES = [with_fault(SHARE, count=2)]
INDEX = "volcano.sh/gpu-index"
STOPS = {"sandbox.cardshare.io/stop-seconds": "600"}
FINALIZER = "example.com/archive"
WHOLE_MIB = 11000


def filling(name, **meta):
    """A pod that fills a card of the node."""
    found = pod(name, "gpu-memory", WHOLE_MIB)
    return {**found, "metadata": {"name": name, **meta}}


async def test_a_deleted_pod_cannot_be_made_to_say_that_it_has_another_card(staged):
    async with staged(nodes=NODES) as stage:
        await apply(stage, filling("holder", annotations=STOPS, finalizers=[FINALIZER]))
        card = (await seen(stage, "holder", lambda s: s.phase == "Running")).annotations[INDEX]
        assert (await stage.person.delete("holder", grace_s=600)).accepted
        # What counts the pod elsewhere, and leaves its card to the next one.
        for forged in (str(1 - int(card)), None, "7"):
            answer = await stage.person.annotate("holder", {INDEX: forged})
            assert (answer.accepted, f"annotation {INDEX}" in answer.message) == (False, True), forged
            assert answer.message.count("CS30") == 1
        # No word is no wish, and changes nothing.
        answer = await stage.person.annotate("holder", {INDEX: ""})
        assert answer.object["metadata"]["annotations"][INDEX] == card
        await apply(stage, filling("second"))
        other = await seen(stage, "second", lambda s: s.phase == "Running")
        assert other.annotations[INDEX] == str(1 - int(card))
        await apply(stage, filling("third"))
        waiting = await seen(stage, "third", lambda s: "card" in s.waiting_reason)
        assert waiting.node == ""
        # Who archived the pod lets it go, whatever else that write says.
        path = f"{PODS}/holder"
        write = {"metadata": {"finalizers": None, "annotations": {INDEX: str(1 - int(card))}}}
        after = await stage.admin.patch(path, write, PatchKind.MERGE)
        assert (after["metadata"].get("finalizers"), after["metadata"]["annotations"][INDEX]) == (None, card)


async def test_past_admission_too_a_deleted_pod_is_counted_on_the_card_that_it_was_bound_with(rig):
    async with rig(nodes=NODES, expects=("holds 22000",)) as world:
        await world.controller()
        await world.add(rigs.pod("holder", {rigs.SHARE: str(WHOLE_MIB)}, annotations=STOPS))
        card = (await world.phase("holder"))["metadata"]["annotations"][INDEX]
        await world.client.delete(f"{PODS}/holder", grace_s=600)
        other = str(1 - int(card))
        await world.client.patch(f"{PODS}/holder", {"metadata": {"annotations": {INDEX: other}}})

        async def told():
            events = await world.client.list("/api/v1/namespaces/default/events")
            return any(one["reason"] == "AssignmentChanged" for one in events)

        await world.until(told)
        await world.add(rigs.pod("second", {rigs.SHARE: str(WHOLE_MIB)}))
        assert (await world.phase("second"))["metadata"]["annotations"][INDEX] == other
        await world.add(rigs.pod("third", {rigs.SHARE: str(WHOLE_MIB)}))
        await world.waits("third", "card")
