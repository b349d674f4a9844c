"""What an API server does with pods, written from its documents and from nothing of ours: for tests of promises.

Requests are executed when a test says so, in any order, once or never, whatever their sender was told of them.
Source: facts 2.1 and 2.2, measured on kube-apiserver v1.36.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from core.model import Phase, Pod, PodUid

IDS = "volcano.sh/vgpu-ids-new"
DEVICES = "volcano.sh/devices-to-allocate"


class RefusedError(Exception):
    """Certainly not written; the status says why."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)


@dataclass(slots=True)
class Request:
    """One call on its way. *what*: bind, fence, read or clear."""

    what: str
    uid: PodUid
    name: str
    version: str = ""
    node: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    text: str = ""
    attempt: int = 0


class TwinApi:
    """Pods in versions, and all that a watch would show of them. *cards*: card -> MiB."""

    def __init__(self, cards: dict[str, int]) -> None:
        self.cards = cards
        self.pods: dict[PodUid, Pod] = {}
        self.revision = 100
        self.events: list[tuple[str, Pod]] = []

    def write(self, pod: Pod, **changes: Any) -> Pod:
        self.revision += 1
        now = pod._replace(**changes, resource_version=str(self.revision))
        self.pods[now.uid] = now
        self.events.append(("MODIFIED", now))
        return now

    def delete(self, uid: PodUid) -> None:
        self.revision += 1
        gone = self.pods.pop(uid)._replace(resource_version=str(self.revision))
        self.events.append(("DELETED", gone))

    def execute(self, request: Request) -> Pod:
        """The pod after *request*.

        Raises:
            RefusedError: 404 or 409, and nothing is written.
        """
        pod = self.pods.get(request.uid)
        if pod is None:
            raise RefusedError(404)
        if request.what == "read":
            return pod
        if request.version and request.version != pod.resource_version:
            raise RefusedError(409)
        if request.what == "bind":
            if pod.node_name or pod.deleting:
                raise RefusedError(409)
            return self.write(pod, node_name=request.node, annotations={**pod.annotations, **request.annotations})
        if request.what == "fence":
            return self.write(pod, scheduled_message=request.text, scheduled_reason="SchedulerError")
        return self.write(pod, annotations={**pod.annotations, **request.annotations})

    # ------------------------------------------------------------------ what is true

    def used(self) -> dict[str, int]:
        """Card -> MiB promised to pods that are bound and not at their end."""
        found: dict[str, int] = defaultdict(int)
        for pod in self.pods.values():
            if pod.node_name and pod.phase not in (Phase.SUCCEEDED, Phase.FAILED):
                for entry in pod.annotations.get(IDS, "").replace(";", ":").split(":"):
                    if entry:
                        card, _, memory, _ = entry.split(",")
                        found[card] += int(memory)
        return found

    def oversold(self) -> dict[str, int]:
        """Cards that are promised beyond what they have."""
        return {card: used for card, used in self.used().items() if used > self.cards[card]}

    def free(self) -> int:
        """The most MiB free on one card."""
        used = self.used()
        return max(total - used.get(card, 0) for card, total in self.cards.items())
