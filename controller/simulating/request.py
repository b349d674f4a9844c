"""What a process gives to the child that simulates for it: the change, and all that only that process knows."""

from enum import IntEnum
from typing import NamedTuple

import msgspec

from core.configuration import Text
from core.model import NodeName, PodUid
from core.wire.changes import Change


class Promised(NamedTuple):
    """The place of a pod whose Binding is not written yet, and the annotations that the Binding has."""

    uid: PodUid
    node: NodeName
    annotations: dict[str, str]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to simulate, and how.

    texts: the configuration in force. scheduler_names: whose pods are placed. hami_config: from the command line.
    trusted: namespaces whose ConfigMaps are trusted. kubeconfig: "" for the pod's own credentials. limit_s: after which
    the child ends. memory_bytes: the most that it may use.
    """

    change: Change
    texts: tuple[Text, ...]
    scheduler_names: tuple[str, ...]
    hami_config: str
    trusted: tuple[str, ...]
    promised: tuple[Promised, ...]
    kubeconfig: str
    limit_s: int
    memory_bytes: int


class Status(IntEnum):
    """The exit status of the child; after `OK` its output is the answer, otherwise a line with the reason."""

    OK = 0
    UNUSABLE = 3
    UNREADABLE = 4
    NO_MEMORY = 5
    TOO_LONG = 6
