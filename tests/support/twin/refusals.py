"""Policies and webhooks that refuse what controllers ask for, clocks that jump, and finalizers of deleted pods.

A policy for `pods/binding` or `pods/status`, a namespace that is being terminated, a webhook that does not answer:
the API server refuses the call for some objects, or for all, until somebody repairs it. A clock of a replica is set by
NTP. A pod with a finalizer, as those of Jobs and of Kueue, stays for a while after its deletion, on a node or not.
Source: Kubernetes' documentation, "Admission Control", "Namespaces" and "Finalizers".
"""

from typing import Any, Final

from tests.support.twin.api import Event, Json, RefusedError, Target
from tests.support.twin.sides import Side

# By what is asked: verb, resource, and the part of it.
_ASKED: Final = (
    ("POST", "pods", "binding"),
    ("POST", "pods", "binding"),
    ("PATCH", "pods", "status"),
    ("PATCH", "pods", ""),
    ("PATCH", "nodes", ""),
    ("POST", "pods", "eviction"),
    ("PATCH", "podgroups.scheduling.volcano.sh", ""),
)
_ANSWERS: Final = (
    (403, "Forbidden", "unable to create new content in namespace default because it is being terminated"),
    (403, "Forbidden", 'admission webhook "policy.example" denied the request: not here'),
    (400, "BadRequest", 'admission webhook "policy.example" denied the request: not so'),
    (422, "Invalid", "ValidatingAdmissionPolicy 'nowhere' denied request: no"),
    (429, "TooManyRequests", "too many requests, please try again later"),
    (500, "InternalError", 'Internal error occurred: failed calling webhook "policy.example": timed out'),
)


class Refusals(Side):
    """What is refused now, and until when."""

    is_second = False

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        # By what is asked, the share of objects for which it is refused, and how.
        self._now: dict[tuple[str, str, str], tuple[float, tuple[int, str, str]]] = {}
        world.api.may = self._may

    def dress(self, pod: Json) -> None:
        if self._draw.random() < 0.3:
            pod["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource == "pods":
            self._heed_deletion(event.key, obj)

    def _heed_deletion(self, key: str, pod: Json) -> None:
        """Whoever has a finalizer on a deleted pod takes it away some time."""
        meta = pod["metadata"]
        if meta.get("finalizers") and meta.get("deletionGracePeriodSeconds") == 0:
            self._world.counts["refusals: pods kept by a finalizer"] += 1
            self._world.at(self._draw.choice((0.0, 2.0, 20.0)), lambda: self._finalize(key, meta["uid"]))

    def _finalize(self, key: str, uid: str) -> None:
        pod = self._world.pod(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._world.api.write("pods", key, {"metadata": {"finalizers": None}})
            self._world.delete(key, force=True)

    def act(self) -> None:
        draw = self._draw
        if draw.random() < 0.3:
            self._jump()
            return
        asked = draw.choice(_ASKED)
        self._now[asked] = draw.choice((0.2, 0.5, 1.0)), draw.choice(_ANSWERS)
        self._world.counts["refusals: begun"] += 1
        self._world.at(draw.choice((1.0, 10.0, 40.0)), lambda: self._now.pop(asked, None))

    def _jump(self) -> None:
        """The wall clock of a replica is set."""
        seat = self._draw.choice(self._world.seats)
        if seat.alive:
            self._world.counts["refusals: clocks set"] += 1
            seat.loop.skew_s = self._draw.choice((0.0, 0.0, -3600.0, -40.0, 40.0, 7200.0))

    def calm(self) -> None:
        super().calm()
        self._now.clear()
        for key, pod in list(self.objects("pods").items()):
            self._heed_deletion(key, pod)  # of a restored one nobody heard

    def _may(self, verb: str, what: Target, given: Json) -> None:
        """Refuse a request for some objects, or some objects on some nodes."""
        found = self._now.get((verb, what.resource, what.sub))
        if found is None:
            return
        share, (status, reason, message) = found
        node = given.get("target", {}).get("name", "") if self._draw.random() < 0.5 else ""
        if sum((node + what.key).encode()) % 10 < 10 * share:
            self._world.counts["refusals: requests"] += 1
            raise RefusedError(status, reason, message)
