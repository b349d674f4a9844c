"""Sees everything that ever stood in the API server, and judges each moment from the objects alone.

It watches nodes and pods on a way of its own that no fault touches. What a node has is what it registered before
anything went wrong: cards do not change in a run, however often their plugins die. The arithmetic is that of
`tests.support.worlds.audit`, which is written from the protocols' documents and shares nothing with the ledger.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

from core.model import Node, Pod
from core.settings import Tables
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from sandbox.client import ApiClient, ApiStatusError
from tests.support.worlds.audit import audit

Json = dict[str, Any]

_PODS: Final = "/api/v1/pods"
_ASSIGNED: Final = re.compile(
    r"volcano\.sh/(vgpu-ids-new|gpu-index)|huawei\.com/npu-core|hami\.io/.+-devices-allocated"
)
_EVICTED_FOR: Final = re.compile(r"Preempted by pod (\S+) on node ")


class Observer:
    """What was seen.

    Attributes:
        overcommits: what was wrong with a node at some moment, each once.
        double: pods that were bound a second time: to another node, or with other cards.
        placed: the uids of all pods that were ever seen on a node.
        turned_away: how many pods kubelets refused, by reason.
        priorities: of every pod that was ever seen, by uid.
        relists: how often history was lost, so that moments may have gone by unseen.
    """

    def __init__(self, client: ApiClient, tables: Tables) -> None:
        self.overcommits: dict[str, None] = {}
        self.double: list[str] = []
        self.placed: set[str] = set()
        self.turned_away: Counter[str] = Counter()
        self.priorities: dict[str, int] = {}
        self.relists = -1
        self.events = 0
        self._client = client
        self._tables = tables
        self._nodes: dict[str, Node] = {}
        self._bound: dict[str, tuple[str, dict[str, str]]] = {}
        self._on: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._where: dict[str, str] = {}

    async def learn_nodes(self) -> None:
        """Take the nodes as they are now for what they always have."""
        self._nodes = {
            one["metadata"]["name"]: node_from_object(one) for one in await self._client.list("/api/v1/nodes")
        }

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self.relists += 1
            listed = await self._client.get(_PODS)
            there = {one["metadata"]["uid"] for one in listed["items"]}
            for uid in [uid for uid in self._where if uid not in there]:
                self._gone(uid)
            for one in listed["items"]:
                self._seen(one)
            version = listed["metadata"]["resourceVersion"]
            try:
                while True:
                    async for event in self._client.watch(_PODS, resource_version=version):
                        version = event.object["metadata"]["resourceVersion"]
                        self._heed(event.type, event.object)
            except ApiStatusError as e:
                if e.status != 410:
                    raise

    async def evictions(self) -> list[tuple[str, str]]:
        """Of every pod that was evicted for another: (its uid, that of the other), as Events tell of it."""
        told = await self._client.list("/api/v1/events", field_selector="reason=Preempted")
        return [
            (one["involvedObject"]["uid"], found[1])
            for one in told
            if (found := _EVICTED_FOR.match(one["message"])) is not None
        ]

    def wronged(self, evictions: Iterable[tuple[str, str]]) -> list[str]:
        """What is wrong with *evictions*: nobody leaves for a pod of his own priority or a lower one."""
        return [
            f"{victim} of priority {self.priorities[victim]} was evicted for {other} of {self.priorities[other]}"
            for victim, other in evictions
            if victim in self.priorities
            and other in self.priorities
            and self.priorities[victim] >= self.priorities[other]
        ]

    def _heed(self, kind: str, obj: Json) -> None:
        self.events += 1
        if kind == "DELETED":
            self._gone(obj["metadata"]["uid"])
        elif kind != "BOOKMARK":
            self._seen(obj)

    def _gone(self, uid: str) -> None:
        if name := self._where.pop(uid, ""):
            self._on[name].pop(uid, None)

    def _seen(self, obj: Json) -> None:
        uid, name = obj["metadata"]["uid"], obj["spec"].get("nodeName", "")
        self.priorities[uid] = obj["spec"].get("priority", 0)
        if not name:
            return
        pod = pod_from_object(obj)
        self._compare_with_before(uid, name, pod)
        self._where[uid] = name
        if pod.finished:
            if self._on[name].pop(uid, None) is not None and obj["status"].get("reason"):
                self.turned_away[obj["status"]["reason"]] += 1
            return
        self._on[name][uid] = pod
        if name in self._nodes:
            found = audit([self._nodes[name]], self._on[name].values(), self._tables)
            self.overcommits.update(dict.fromkeys(found))

    def _compare_with_before(self, uid: str, name: str, pod: Pod) -> None:
        cards = {key: text for key, text in pod.annotations.items() if _ASSIGNED.fullmatch(key) and text}
        self.placed.add(uid)
        before = self._bound.setdefault(uid, (name, cards))
        # What is cleared of a pod that is over is no second assignment.
        changed = {key for key, text in cards.items() if before[1].get(key) != text}
        if before[0] != name or changed:
            self.double.append(f"{pod.key} ({uid}): first {before}, then {(name, cards)}")
            self._bound[uid] = (name, cards)
