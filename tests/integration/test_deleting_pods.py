"""Pods that are being deleted: they have their cards until they are gone, and nobody says otherwise."""

from sandbox.client import PatchKind
from tests.integration.test_failing_plugins import SHARE, apply, pod, seen, with_fault
from tests.support.controller_rig import PODS

NODES = [with_fault(SHARE, count=2)]
INDEX = "volcano.sh/gpu-index"
STOPS = {"sandbox.cardshare.io/stop-seconds": "60"}
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
        assert (await stage.person.delete("holder", grace_s=60)).accepted
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
