"""What happened to a pod, asked of the controller over TLS: by whoever may, and of what the leader before stored."""

import json

import aiohttp
import pytest

from cli.__main__ import run
from cli.options import parse
from core.history.minutes import Key, Minute, Sums
from core.history.pods import Life, PodEvent, What
from core.model import PodUid
from core.units import time_text
from core.wire.history import life_line, minute_line, pack, read_lives
from sandbox.demo.product import NAMESPACE
from tests.integration.test_explain import AUDIENCE, Asked, grant
from tests.support.worlds.controller_rig import NODES, PODS, pod, share
from tests.support.worlds.world import finished

STORE = "cardshare-history"
MINUTE = 28_000_000


async def store(world, name=STORE, *, at=MINUTE, also=(), other="other") -> None:
    """Store what a leader remembered: a pod of namespace default and of *other*, and minutes *at* and *also* (Unix)."""
    asked_s = at * 60
    lives = [
        Life(PodUid(f"uid-{space}"), f"{space}/old", (PodEvent(What.ASKED, asked_s, asked_s, text="vgpu"),))
        for space in ("default", other)
    ]
    sums = {Key("vgpu", "T4", "team"): Sums(promised_ms=60_000), Key("vgpu", "", "team"): Sums(waiting=2)}
    minutes = [minute_line(Minute(each, sums)) for each in (at, *also)]
    stored = {
        "pods": finished(pack(map(life_line, lives), 10_000, asked_s)),
        "minutes": finished(pack(minutes, 10_000, asked_s)),
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    await world.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": stored}])


async def begins(world, name=STORE) -> Asked:
    """A controller that follows another, and stores in ConfigMap *name*."""
    await store(world, name)
    found = Asked(world)
    await found.start("--keep-history", f"{NAMESPACE}/{name}")
    return found


def kinds(answer):
    return [[one["what"] for one in life["events"]] for life in answer["lives"]]


async def test_what_happened_is_answered_and_outlives_its_leader(rig, capsys):
    async with rig(nodes=NODES[:1]) as world:
        found = await begins(world)
        status, answer = await found.get("/v1/history/pods/default/old")
        assert (status, kinds(answer), answer["notes"]) == (200, [["asked", "gone"]], [])
        await world.add(pod("p", share(3000)))
        await world.phase("p")

        async def served():
            status, answer = await found.get("/v1/history/pods/default/p")
            return status == 200 and kinds(answer) == [["asked", "reserved", "sent", "bound", "served"]]

        await world.until(served)
        _, answer = await found.get("/v1/history/pods/default/p")
        texts = {one["what"]: one["text"] for one in answer["lives"][0]["events"]}
        assert texts["sent"].startswith("t4-a: GPU-t4-a-")
        assert "volcano.sh/vgpu-number: 1" in texts["asked"]
        assert await found.cards("why", "p") == 0
        told = capsys.readouterr()
        assert "default/p was bound " in told.out
        assert "its Binding was sent, with t4-a: GPU-t4-a-" in told.out
        assert told.err == ""
        await world.client.delete(f"{PODS}/p")

        async def gone():
            return kinds((await found.get("/v1/history/pods/default/p"))[1])[0][-1] == "gone"

        await world.until(gone)
        assert await found.cards("why", "default/p", "-o", "json") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["pod"], said["source"], kinds(said)[0][-1]) == ("default/p", "controller", "gone")
        assert await found.cards("why", "nobody") == 1
        assert "there is no pod nobody in namespace default" in capsys.readouterr().err
        status, answer = await found.get("/v1/history")
        (series,) = [one for one in answer["series"] if one["type"] == "T4"]
        assert (status, answer["since"], series["promised_ms"][0]) == (200, time_text(MINUTE * 60), 60_000)

        async def stored():
            held = await world.client.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STORE}")
            _, lives = read_lives(held["binaryData"]["pods"])
            return {life.events[-1].what for life in lives} == {What.GONE}

        await world.until(stored)


async def test_one_namespace_is_answered_alone(rig):
    async with rig(nodes=NODES[:1]) as world:
        found = await begins(world)
        token = await world.token("reader", "default", audiences=(AUDIENCE,))
        assert (await found.get("/v1/history/pods/default/old", token))[0] == 403
        await grant(world, "history-default", ["/v1/history/pods/default/*"], "reader")
        found.token = await world.token("reader", "default", audiences=(AUDIENCE,))

        async def granted():
            return (await found.get("/v1/history/pods/default/old"))[0] == 200

        await world.until(granted)
        assert "other" not in str(await found.get("/v1/history/pods/default/old"))
        for path in ("/v1/history/pods/other/old", "/v1/history", "/v1/explain/default/old"):
            assert (await found.get(path))[0] == 403
        with pytest.raises(aiohttp.ContentTypeError, match="404"):
            await found.get("/v1/history/pods/default/..%2Fother/old")
        assert (await found.get("/v1/history/pods/default/none"))[0] == 404
        assert (await found.get("/v1/history/pods/default/old", ""))[0] == 401


async def test_without_an_answer_of_the_controller_what_it_stored_is_shown_or_conditions_and_events(rig, capsys):
    async with rig(nodes=NODES[:1]) as world:
        found = await begins(world, "elsewhere")
        await store(world)
        await world.add(pod("p", share(3000)), pod("large", share(99_000)))
        await world.phase("p")
        await world.waits("large", "CS50")
        kubeconfig = ("--kubeconfig", found.kubeconfig)
        assert await run(parse(["why", "large", *kubeconfig], {}), {}) == 0
        told = capsys.readouterr().out
        assert "default/large was not bound while this was recorded" in told
        assert "it waited: CS50" in told
        assert "note: --controller is missing; this is what the pod's conditions and events say" in told
        assert await found.cards("why", "p", "-o", "json", token_file="") == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["source"], said["lives"][0]["events"][0]["what"]) == ("conditions", "asked")
        assert "the controller answers 401" in said["notes"][0]
        assert await run(parse(["why", "old", *kubeconfig], {}), {}) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[2].endswith("  it was created and asked for vgpu")
        assert told[-1].startswith(f"note: this was stored at {time_text(MINUTE * 60)}")
        assert await run(parse(["why", "nobody", *kubeconfig], {}), {}) == 1
        assert "give --controller" in capsys.readouterr().err
