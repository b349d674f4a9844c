"""What frameworks make of workloads: the golden objects of tests/data/frameworks, and how they are played.

A file holds one framework: `framework`, `version`, the `cards` that its pods ask for (a key of `CARDS`), and `cases`;
`native` says that its groups are Kubernetes' own, which not every API server serves. A case has a `name`, its `outcome`
(see `Player.judge`), and `steps`, each a mapping from one verb to its object; verbs are public methods of `Player`. The
objects are written after the framework's documents and types.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from core.waiting import code_in
from sandbox.client import ApiClient, ApiStatusError, PatchKind
from tests.support.worlds.controller_rig import PODS
from tests.support.worlds.volcano import path_of, shown_group

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parents[2] / "data" / "frameworks"


class Cards(NamedTuple):
    """Cards of one kind: the plugin that has them, and the limits that ask for a whole one."""

    plugin: Mapping[str, Any]
    limits: Mapping[str, str]

    def nodes(self) -> tuple[Json, ...]:
        """Two nodes with half of the cards each."""
        return tuple({"name": f"node-{at}", "plugin": {**self.plugin, "count": TOTAL // 2}} for at in "ab")


TOTAL: Final = 4
CARDS: Final[Mapping[str, Cards]] = {
    "vgpu": Cards(
        {"kind": "vgpu", "model": "Tesla V100-SXM2-32GB", "memory_mib": 32768},
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "32768"},
    ),
    "hami": Cards(
        {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028},
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20000"},
    ),
    "gpu": Cards({"kind": "nvidia", "model": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920}, {"nvidia.com/gpu": "1"}),
}
_COLLECTIONS: Final = {
    "Pod": PODS,
    "PodGroup": "/apis/{apiVersion}/namespaces/default/podgroups",
    "Workload": "/apis/{apiVersion}/namespaces/default/workloads",
    "Queue": "/apis/{apiVersion}/queues",
    "PriorityClass": "/apis/{apiVersion}/priorityclasses",
    "CustomResourceDefinition": "/apis/{apiVersion}/customresourcedefinitions",
}
# In which version the golden objects have Kubernetes' own groups.
_NATIVE: Final = "scheduling.k8s.io/v1beta1"
# A kind that is installed later is found within 30 s.
_WITHIN_S: Final = 90.0


class Case(NamedTuple):
    """One workload, and what becomes of it."""

    name: str
    outcome: str
    steps: tuple[Json, ...]


class Framework(NamedTuple):
    """What makes them; cards: a key of `CARDS`; native: whether the groups are Kubernetes' own."""

    name: str
    version: str
    cards: str
    native: bool
    cases: tuple[Case, ...]


def frameworks() -> Iterator[Framework]:
    """All of them, by file."""
    for path in sorted(FOLDER.glob("*.yaml")):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        cases = tuple(Case(one["name"], one["outcome"], tuple(one["steps"])) for one in found["cases"])
        yield Framework(found["framework"], found["version"], found["cards"], found.get("native", False), cases)


async def play(client: ApiClient, framework: Framework, native: str = "v1beta1") -> None:
    """Play all cases of *framework*, each on an empty cluster; the first that does not come true fails the test.

    native: the version in which Kubernetes' own groups are served.
    """
    for case in framework.cases:
        player = Player(client, framework.cards, f"scheduling.k8s.io/{native}")
        try:
            await player.play(case.steps)
            await player.judge(case.outcome)
        except AssertionError as e:
            pytest.fail(f"{case.name}: {e}", pytrace=False)
        await player.clear()


class Player:
    """Takes the steps of one case; what it made goes when `clear` is called."""

    def __init__(self, client: ApiClient, cards: str, native: str) -> None:
        self._client = client
        self._native = native
        self._cards = cards
        self._held = 0
        self._made: list[str] = []
        self._codes: set[str] = set()

    async def play(self, steps: Sequence[Json]) -> None:
        """Take *steps*; the first that does not come true raises, with its number and verb."""
        for at, step in enumerate(steps):
            ((verb, what),) = step.items()
            try:
                await getattr(self, verb)(what)
            except (AssertionError, TimeoutError, ApiStatusError) as e:
                raise AssertionError(f"step {at}, {verb}: {e}; {await self._states()}") from e

    async def judge(self, outcome: str) -> None:
        """That *outcome* is what the steps came to.

        `works`: all pods have a node. A code: some pod waited with it. Else the type of a condition of a PodGroup.
        """
        pods = [one for one in await self._client.list(PODS) if not one["metadata"]["name"].startswith("hold-")]
        if outcome == "works":
            assert all("nodeName" in one["spec"] for one in pods), f"a pod has no node; {await self._states()}"
        elif outcome.startswith("CS"):
            assert outcome in self._codes, f"found {sorted(self._codes)}, not {outcome}"
        else:
            groups = await self._groups()
            assert any(shown_group(one).endswith(f" {outcome}") for one in groups), f"no group is {outcome}"

    async def clear(self) -> None:
        """Remove all that was made."""
        await self.free(TOTAL)
        for path in reversed(self._made):
            try:
                await self._client.delete(path, grace_s=0)
            except ApiStatusError as e:
                if e.status != 404:
                    raise

    # ------------------------------------------------------------------ what is done

    async def free(self, count: int) -> None:
        """Hold all cards but *count*."""
        while self._held < TOTAL - count:
            self._held += 1
            await self._client.create(PODS, self._holder(self._held))
            await self._until(partial(self._is, f"hold-{self._held}", "Running"), "cards are not held")
        while self._held > TOTAL - count:
            await self._client.delete(f"{PODS}/hold-{self._held}", grace_s=0)
            self._held -= 1

    def _holder(self, at: int) -> Json:
        container = {"name": "main", "image": "i", "resources": {"limits": CARDS[self._cards].limits}}
        metadata = {"name": f"hold-{at}", "namespace": "default"}
        return {"metadata": metadata, "spec": {"schedulerName": "cardshare", "containers": [container]}}

    async def create(self, objects: Sequence[Json]) -> None:
        """Create *objects*, one after the other."""
        for written in objects:
            is_native = written["apiVersion"] == _NATIVE
            one = {**written, "apiVersion": self._native} if is_native else written
            path = _COLLECTIONS[one["kind"]].format(**one)
            await self._until(partial(self._is_made, path, one), f"{path} is not served")
            self._made.append(f"{path}/{one['metadata']['name']}")

    async def update(self, objects: Sequence[Json]) -> None:
        """Replace *objects* by what is written, whatever else they had."""
        for one in objects:
            await self._until(partial(self._is_replaced, one), f"{one['kind']} changes all the time")

    async def _is_replaced(self, one: Json) -> bool:
        path = f"{_COLLECTIONS[one['kind']].format(**one)}/{one['metadata']['name']}"
        version = (await self._client.get(path))["metadata"]["resourceVersion"]
        try:
            await self._client.update(path, {**one, "metadata": {**one["metadata"], "resourceVersion": version}})
        except ApiStatusError as e:
            if e.reason != "Conflict":
                raise
            return False  # its status was written meanwhile
        return True

    async def merge(self, objects: Sequence[Json]) -> None:
        """Change the specs of *objects* to what is written."""
        for one in objects:
            path = f"{_COLLECTIONS[one['kind']].format(**one)}/{one['metadata']['name']}"
            await self._client.patch(path, {"spec": one["spec"]})

    async def ungate(self, pods: Sequence[str]) -> None:
        """Lift the gates of *pods*, one after the other."""
        for name in pods:
            lifted = [{"op": "remove", "path": "/spec/schedulingGates"}]
            await self._client.patch(f"{PODS}/{name}", lifted, PatchKind.JSON)

    async def ends(self, pods: Sequence[str]) -> None:
        """Have *pods* end well."""
        for name in pods:
            status = {"status": {"phase": "Succeeded"}}
            await self._client.patch(f"{PODS}/{name}/status", status, PatchKind.STRATEGIC)

    async def delete(self, pods: Sequence[str]) -> None:
        """Delete *pods*."""
        for name in pods:
            await self._client.delete(f"{PODS}/{name}", grace_s=0)

    async def remove(self, objects: Sequence[Json]) -> None:
        """Delete *objects* of other kinds."""
        for one in objects:
            await self._client.delete(f"{_COLLECTIONS[one['kind']].format(**one)}/{one['metadata']['name']}")

    # ------------------------------------------------------------------ what has to come true

    async def waits(self, words: Mapping[str, str]) -> None:
        """Each pod says these words in its condition, and none of them has a node."""
        for name, wanted in words.items():
            await self._until(partial(self._says, name, wanted), f"pod {name} does not say {wanted!r}")
        for name in words:
            found = await self._pod(name)
            assert "nodeName" not in found["spec"], f"pod {name} has a node"
            self._codes.add(code_in(_message(found)))

    async def runs(self, pods: Sequence[str]) -> None:
        """*pods* run."""
        for name in pods:
            await self._until(partial(self._is, name, "Running"), f"pod {name} does not run")

    async def whole(self, wanted: Mapping[str, Any]) -> None:
        """So many pods *run*; of pods with equal values of *label* all do, or none has a node."""
        label, run = wanted["label"], wanted["run"]

        async def so_many() -> bool:
            found = await self._client.list(PODS, label_selector=label)
            return bool(sum(one["status"].get("phase") == "Running" for one in found) == run)

        await self._until(so_many, f"not {run} pods run")
        placed: dict[str, set[bool]] = {}
        for one in await self._client.list(PODS, label_selector=label):
            placed.setdefault(one["metadata"]["labels"][label], set()).add("nodeName" in one["spec"])
        assert all(len(found) == 1 for found in placed.values()), f"placed in part: {placed}"

    async def group(self, wanted: Mapping[str, str]) -> None:
        """PodGroups of Volcano are in this state, as `shown_group` writes it."""
        for name, state in wanted.items():
            await self._until(partial(self._is_shown, name, state), f"group {name} is not {state}")

    async def native(self, wanted: Mapping[str, str]) -> None:
        """PodGroups of Kubernetes' own have one condition, of this status and reason."""
        for name, state in wanted.items():
            await self._until(partial(self._is_native, name, state), f"group {name} is not {state}")

    async def beside(self, pods: Sequence[str]) -> None:
        """*pods* are on one node."""
        nodes = {(await self._pod(name))["spec"]["nodeName"] for name in pods}
        assert len(nodes) == 1, f"they are on {sorted(nodes)}"

    async def told(self, words: Mapping[str, str]) -> None:
        """PodGroups of Volcano say these words in a condition that is true."""
        for name, wanted in words.items():
            await self._until(partial(self._tells, name, wanted), f"group {name} does not say {wanted!r}")

    # ------------------------------------------------------------------ how it is found out

    async def _until(self, what: Callable[[], Awaitable[bool]], why: str) -> None:
        try:
            async with asyncio.timeout(_WITHIN_S):
                while not await what():  # noqa: ASYNC110 (the cluster tells nobody)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(why) from None

    async def _is_made(self, path: str, one: Json) -> bool:
        """Create it; False while its kind is not served yet."""
        try:
            await self._client.create(path, one)
        except ApiStatusError as e:
            if e.status != 404:
                raise
            return False
        return True

    async def _says(self, name: str, words: str) -> bool:
        return words in _message(await self._pod(name))

    async def _is(self, name: str, phase: str) -> bool:
        return bool((await self._pod(name))["status"].get("phase") == phase)

    async def _is_shown(self, name: str, state: str) -> bool:
        return shown_group(await self._client.get(path_of("PodGroup", name))) == state

    async def _is_native(self, name: str, state: str) -> bool:
        path = _COLLECTIONS["PodGroup"].format(apiVersion=self._native)
        found = await self._client.get(f"{path}/{name}")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return [f"{one['status']} {one['reason']}" for one in conditions] == [state]

    async def _tells(self, name: str, words: str) -> bool:
        found = await self._client.get(path_of("PodGroup", name))
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(words in one.get("message", "") for one in conditions if one["status"] == "True")

    async def _pod(self, name: str) -> Json:
        return await self._client.get(f"{PODS}/{name}")

    async def _states(self) -> dict[str, str]:
        """What there is, for whoever has to find out why."""
        found = {
            f"pod {one['metadata']['name']}": f"{one['spec'].get('nodeName', '')} {_message(one)}"
            for one in await self._client.list(PODS)
        }
        groups = await self._groups()
        return found | {f"group {one['metadata']['name']}": shown_group(one) for one in groups}

    async def _groups(self) -> tuple[Json, ...]:
        """Volcano's PodGroups; none where that kind is not installed."""
        try:
            return await self._client.list(path_of("PodGroup", "").rstrip("/"))
        except ApiStatusError as e:
            if e.status != 404:
                raise
            return ()


def _message(pod: Json) -> str:
    conditions = pod["status"].get("conditions") or ()
    return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")
