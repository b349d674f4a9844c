"""Volcano's Jobs with their queue: from the API server's JSON to `JobSpec`."""

from dataclasses import dataclass
from typing import Final

import msgspec

from core.groups import DEFAULT_QUEUE
from core.wire import reading

_NOT_BEGUN: Final = ("", "Pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A Job of Volcano. begun: its state is not Pending, so its queue exists."""

    namespace: str
    name: str
    uid: str
    queue: str
    begun: bool


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False):
    queue: str | None = ""


class _State(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    state: _State | None = None


class _Job(msgspec.Struct, frozen=True, gc=False):
    """Source: Volcano, batch/v1alpha1 types.go (groups 2)."""

    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_STATUS: Final = _Status()
_NO_STATE: Final = _State()


def _job(found: _Job) -> JobSpec:
    meta, state = found.metadata, (found.status or _NO_STATUS).state or _NO_STATE
    return JobSpec(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=(found.spec or _NO_SPEC).queue or DEFAULT_QUEUE,
        begun=(state.phase or "") not in _NOT_BEGUN,
    )


decode_job: Final = reading.reader("Job", _Job, _job)
