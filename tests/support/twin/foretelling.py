"""Whole controllers in virtual time do what `controller.simulating` said before; the command line.

In each life a cluster is changed again and again. Before each change, the API server's objects are simulated with it;
then it is made, all at one instant, and the controller decides. Nothing goes wrong in these lives.
"""

# ruff: noqa: E402 (the clock comes first)
import gc

from tests.support.twin import clock

# Nearly all objects of a life stay until its end; the clock makes this function do nothing.
_keep_all = gc.disable

clock.install()

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from controller.simulating.changes import UnusableChangeError
from controller.simulating.reading import read
from controller.simulating.simulate import simulate
from core.settings import Settings, Tables
from core.view.simulated import Simulated
from core.waiting import code_in
from core.wire.changes import Change
from kube.errors import from_event
from kube.transport import Response
from tests.support.twin.api import Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.loops import new_loop
from tests.support.twin.machines import ASCEND_MIB, ENDED, Kind
from tests.support.twin.world import World, _limits

_SETTINGS: Final = Settings(keep_free_for_s=0.0, removed_pod_hold_s=0.0)
_TEXT: Final = "keep_free_for_s: 0\nremoved_pod_hold_s: 0\n"
_CHANGES_OF_A_LIFE: Final = 20
_FOREVER_S: Final = 1e9
_PAUSE_S: Final = 0.5
# A device plugin serves one pod after another, each within a second.
_QUIET_S: Final = 3.0
# More pods would wait in lines in front of device plugins, and go elsewhere if that takes too long.
_PODS_MAX: Final = 5
# Whether a new node would help: the controller remembers the kinds of removed nodes, which no object shows.
_HOPES: Final = {"CS501", "CS502"}


class _Lists:
    """Answers as the API server of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def request(self, verb: str, path: str, **sending: Any) -> Response:
        answer = self._world.api.request(verb, path, None)
        if answer.status != 200:
            raise from_event(verb, path, answer.status, "", "")
        return Response(status=200, headers={}, body=answer.body)


def _now(work: Coroutine[Any, Any, Any]) -> Any:
    """What *work* returns, at one instant for everybody else."""
    before_s, loop = CLOCK.now_s, new_loop()
    task = loop.create_task(work)
    while not task.done():
        CLOCK.now_s = max(CLOCK.now_s, loop.next_s())
        loop.run_one()
    CLOCK.now_s = before_s
    return task.result()


class Life:
    """One cluster, and what was wrong about it."""

    def __init__(self, seed: str, settings: Path) -> None:
        self.world = World(seed, settings)
        self.world.lifetime_s = lambda key: _FOREVER_S  # type: ignore[method-assign]
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._draw = self.world.draw
        self._number = self._created_s = 0
        draw = self._draw
        for number in range(draw.randint(1, 3)):
            self._add_machine(f"n{number}", draw.choice(tuple(Kind)), draw.randint(1, 2))
        self.world.seats[0].start()
        self.world.run(60.0, lambda: self.world.leader is not None)

    def _add_machine(self, name: str, kind: Kind, cards: int) -> None:
        mib = ASCEND_MIB if kind is Kind.ASCEND else self._draw.choice((8000, 16000))
        self.world.add_node(
            name, kind, {f"{'A' if kind is Kind.ASCEND else 'GPU'}-{name}-{at}": mib for at in range(cards)}
        )

    def run(self, changes: int) -> None:
        """Make so many changes."""
        for _ in range(changes):
            change, pods = self._change()
            if self.wrong:
                return
            expected = self._foretold(change)
            if expected is not None:
                self._make(change, pods)
                self._compare(change, expected)

    # ------------------------------------------------------------------ changes

    def _change(self) -> tuple[Change, list[Json]]:
        draw, nodes = self._draw, sorted(self.world.machines)
        pods = self.world.api.objects["pods"]
        kinds = draw.sample(("add", "add", "add", "drain", "remove", "like"), draw.choice((1, 1, 2)))
        added: list[Json] = []
        if "add" in kinds and len(pods) < _PODS_MAX:
            added = [self._pod() for _ in range(draw.randint(1, 3))]
        gone = draw.choice(nodes)
        like = draw.choice(nodes)
        return Change(
            manifests="\n---\n".join(map(json.dumps, added)),
            drain=(gone,) if "drain" in kinds else (),
            remove=(gone,) if "remove" in kinds and "drain" not in kinds and len(nodes) > 1 else (),
            like=like,
            add_nodes=1 if "like" in kinds and len(nodes) < 4 else 0,
        ), added

    def _pod(self) -> Json:
        draw = self._draw
        kind = draw.choice(sorted({one.kind for one in self.world.machines.values()}))
        self._number += 1
        mib = draw.choice((2000, 3000, 6000, 9000))
        limits = _limits(kind, draw.choice((1, 1, 1, 2)) if kind is not Kind.ASCEND else 1, mib, 0)
        resources = {"limits": limits, "requests": limits}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "serve", "uid": "serve", "controller": True}
        metadata: Json = {"name": f"p{self._number:04}", "namespace": "default", "annotations": {}, "labels": {}}
        if draw.random() < 0.8:
            metadata["ownerReferences"] = [owner]
        containers = [{"name": "c", "image": "i", "resources": resources}]
        spec = {"schedulerName": "cardshare", "priority": draw.choice((0, 0, 5)), "containers": containers}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}

    def _foretold(self, change: Change) -> Simulated | None:
        async def work() -> Simulated:
            cluster, _ = await read(_Lists(self.world), Tables(), _SETTINGS, wall_s=clock.wall_s())
            return await simulate(cluster, change)

        try:
            return _now(work())  # type: ignore[no-any-return]
        except UnusableChangeError as e:
            # A pod that a dialect cannot read: the webhook, which has no part in these lives, would deny it.
            self.counts[f"no change: {str(e)[:40]}"] += 1
            return None

    def _make(self, change: Change, added: Sequence[Json]) -> None:
        """Make *change* while the controller stands still, so that it sees all of it together."""
        world, api = self.world, self.world.api
        world.seats[0].paused_until_s = CLOCK.now_s + _PAUSE_S
        created: list[Json] = []
        if change.add_nodes:
            machine = world.machines[change.like]
            name = next(
                f"{change.like}-new-{at}" for at in range(1, 99) if f"{change.like}-new-{at}" not in world.machines
            )
            world.add_node(name, machine.kind, machine.cards)
        for name in (*change.drain, *change.remove):
            for key, pod in sorted(api.objects["pods"].items()):
                if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in ENDED:
                    created += [_anew(pod)] if pod["metadata"].get("ownerReferences") else []
                    world.end_pod(key)
                    world.delete(key)
        for name in change.drain:
            api.write("nodes", name, {"spec": {"unschedulable": True}})
        for name in change.remove:
            node = api.objects["nodes"][name]
            api._store("nodes", name, dict(node), "DELETED")
            del world.machines[name]
            world.dirty.discard(name)
        for pod in (*created, *added):
            # No object shows which of two pods of one second came first.
            self._created_s = max(self._created_s + 1, int(clock.wall_s()))
            at = datetime.fromtimestamp(self._created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            api.create("pods", {**pod, "metadata": {**pod["metadata"], "creationTimestamp": at}}, "default")
        world.run(_PAUSE_S)
        self._settle()
        for kind in ("add_nodes", "drain", "remove", "manifests"):
            self.counts[f"changes: {kind}"] += bool(getattr(change, kind))

    def _settle(self) -> None:
        """Let time pass until all that is bound runs, and nothing moves."""
        before: Mapping[str, Any] | None = None
        pods = self.world.api.objects["pods"]
        while (now := {key: _state(pod) for key, pod in pods.items()}) != before or ("waits", "", "") in now.values():
            before = now
            self.world.run(_QUIET_S)

    # ------------------------------------------------------------------ comparing

    def _compare(self, change: Change, expected: Simulated) -> None:
        pods = self.world.api.objects["pods"]
        for one in expected.pods:
            pod = pods.get(one.pod)
            found = ("ended", "", "") if pod is None else _outcome(pod)
            wanted = (one.outcome, one.node, one.code)
            if self.counts["changes: remove"] and {wanted[2], found[2]} == _HOPES:
                wanted = found
            self.counts[f"pods: {one.because} {one.outcome}"] += 1
            if found != wanted:
                self._find(
                    change, f"{one.pod}: simulated {one.because} {one.before!r} {wanted} {one.text}, found {found}"
                )
            elif pod is not None and one.node:
                held = _cards(pod, self.world.machines[one.node].kind)
                if sorted(card.card for card in one.cards) != held:
                    self._find(change, f"{one.pod}: simulated cards {one.cards}, found {held}")
        waiting = sum(_outcome(pod)[0] == "waits" for pod in pods.values())
        if waiting != expected.waiting + sum(one.outcome == "waits" for one in expected.pods):
            self._find(change, f"{waiting} pods wait, simulated {expected.waiting} beside those of the answer")

    def _find(self, change: Change, text: str) -> None:
        self.wrong.append(f"{CLOCK.now_s:.0f} s: {change}: {text}")


def _anew(pod: Json) -> Json:
    metadata = {**pod["metadata"], "annotations": {}}
    for key in ("uid", "creationTimestamp", "resourceVersion"):
        metadata.pop(key, None)
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _state(pod: Json) -> tuple[str, str, str]:
    return (
        _outcome(pod)
        if pod["status"].get("phase") == "Running" or not pod["spec"].get("nodeName")
        else ("starts", "", "")
    )


def _outcome(pod: Json) -> tuple[str, str, str]:
    node = pod["spec"].get("nodeName", "")
    if node:
        return "placed", node, ""
    reasons: list[Mapping[str, str]] = pod["status"].get("conditions", [])
    return "waits", "", next((code_in(one.get("message", "")) for one in reasons if one["type"] == "PodScheduled"), "")


def _cards(pod: Json, kind: Kind) -> list[str]:
    """The cards that *pod* holds, by its annotation."""
    text = pod["metadata"]["annotations"].get(kind.assigned, "")
    if kind is Kind.ASCEND and text.startswith("["):
        return sorted(one["UUID"] for part in json.loads(text) for one in part)
    return sorted(piece.split(",")[0] for part in text.split(";") for piece in part.split(":") if "," in piece)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.twin.foretelling", description=__doc__)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        words = sys.argv[1:] if arguments is None else arguments
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.support.twin.foretelling", *words],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    _keep_all()
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "cardshare.yaml"
        settings.write_text(_TEXT)
        for number in range(-(-chosen.changes // _CHANGES_OF_A_LIFE)):
            life = Life(f"foretold/{chosen.seed}/{number}", settings)
            life.run(_CHANGES_OF_A_LIFE)
            counts += life.counts
            gc.collect()
            wrong += [f"seed {chosen.seed}, life {number}, {text}" for text in life.wrong]
    for kind, count in sorted(counts.items()):
        sys.stdout.write(f"{count:>9,} {kind}\n")
    sys.stdout.write("".join(f"{text}\n" for text in wrong))
    sys.stdout.write(f"{clock.cpu_s():.0f} s of CPU: {len(wrong)} differences\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
