"""What the API server shows, told to the owner in order: pods, nodes, groups, queues, and ConfigMaps.

Lists and watches are `kube.reflector`'s; here stands only which kinds there are and whom they are told to.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from controller.actions import Announce, Subject, about_pod
from controller.deciding.owner import Owner
from controller.inbox import Inbox
from controller.volcano_name import VolcanoName
from core.errors import InvalidRequestError
from core.groups import GroupKind, GroupSpec, QueueSpec
from core.model import Node, NodeName, Pod
from core.port import Place
from core.wire.config_maps import ConfigMap, decode_config_map
from core.wire.nodes import decode_node, salvage_node
from core.wire.podgroups import DECODERS, salvage_group
from core.wire.pods import decode_pod, salvage_pod
from core.wire.queues import decode_queue, salvage_queue
from kube import listing
from kube.calls import namespace_path
from kube.objects import EventKind, event_decoder, page_decoder
from kube.reflector import Pace, Reflector, Source

_log: Final = structlog.get_logger()

_T = TypeVar("_T")

PODS_PATH: Final = "/api/v1/pods"
NODES_PATH: Final = "/api/v1/nodes"
# What decisions are founded on: each watch ends so soon that its end, or a bookmark before it, shows that all is well.
_PACE: Final = Pace(watch_s=8.0, silence_s=13.0)
# Kinds that need not be installed are looked for so often.
_OPTIONAL: Final = Pace(last_list_wait_s=10.0)


class Forgiving(Generic[_T]):
    """A decoder that hands over what is left of an object that cannot be read, so that it keeps no other from being.

    Attributes:
        salvaged: how many times.
    """

    def __init__(
        self,
        decode: Callable[[bytes], _T],
        salvage: Callable[[bytes], _T],
        tell: Callable[[_T, InvalidRequestError], None],
    ) -> None:
        """Prepare; *tell*: what is left, and why there is no more of it."""
        self.salvaged = 0
        self._decode: Final = decode
        self._salvage: Final = salvage
        self._tell: Final = tell

    def __call__(self, text: bytes) -> _T:
        """The object in *text*.

        Raises:
            InvalidRequestError: not even which it is can be read.
        """
        try:
            return self._decode(text)
        except InvalidRequestError as e:
            found = self._salvage(text)
            self.salvaged += 1
            self._tell(found, e)
            return found


class PodSink:
    """Tells the owner of pods, and who else places them."""

    def __init__(self, owner: Owner, inbox: Inbox, others: VolcanoName) -> None:
        self._owner = owner
        self._inbox = inbox
        self._others = others

    async def on_replace(self, objects: Sequence[Pod], resource_version: str) -> None:
        """These pods, and no others, exist."""
        self._others.replaced(objects)
        await self._inbox.put_and_wait(partial(self._owner.pods_replaced, objects))

    async def on_event(self, kind: EventKind, value: Pod) -> None:
        """One pod appeared, changed or went."""
        if kind is EventKind.DELETED:
            self._others.gone(value.uid)
            await self._inbox.put_in_time(partial(self._owner.pod_gone, value.uid))
        else:
            self._others.seen(value)
            await self._inbox.put_in_time(partial(self._owner.pod_changed, value))


class NodeSink:
    """Tells the owner of nodes."""

    def __init__(self, owner: Owner, inbox: Inbox) -> None:
        self._owner = owner
        self._inbox = inbox

    async def on_replace(self, objects: Sequence[Node], resource_version: str) -> None:
        """These nodes, and no others, exist."""
        await self._inbox.put_and_wait(partial(self._owner.nodes.replaced, objects))

    async def on_event(self, kind: EventKind, value: Node) -> None:
        """One node appeared, changed or went."""
        if kind is EventKind.DELETED:
            await self._inbox.put_in_time(partial(self._owner.nodes.gone, value.name))
        else:
            await self._inbox.put_in_time(partial(self._owner.nodes.changed, value))


class GroupSink:
    """Tells the owner of PodGroups of one kind; without a version of the list, the kind is not installed."""

    def __init__(self, kind: GroupKind, owner: Owner, inbox: Inbox) -> None:
        self._kind = kind
        self._owner = owner
        self._inbox = inbox

    async def on_replace(self, objects: Sequence[GroupSpec], resource_version: str) -> None:
        """These groups, and no others, exist."""
        replaced = self._owner.groups.replaced
        await self._inbox.put_and_wait(partial(replaced, self._kind, objects, served=bool(resource_version)))

    async def on_event(self, kind: EventKind, value: GroupSpec) -> None:
        """One group appeared, changed or went."""
        groups = self._owner.groups
        gone = kind is EventKind.DELETED
        await self._inbox.put_in_time(partial(groups.gone, value.key) if gone else partial(groups.changed, value))


class QueueSink:
    """Tells the owner of Volcano's queues."""

    def __init__(self, owner: Owner, inbox: Inbox) -> None:
        self._owner = owner
        self._inbox = inbox

    async def on_replace(self, objects: Sequence[QueueSpec], resource_version: str) -> None:
        """These queues, and no others, exist."""
        replaced = self._owner.groups.queues_replaced
        await self._inbox.put_and_wait(partial(replaced, objects, served=bool(resource_version)))

    async def on_event(self, kind: EventKind, value: QueueSpec) -> None:
        """One queue appeared, changed or went."""
        groups = self._owner.groups
        gone = kind is EventKind.DELETED
        told = partial(groups.queue_gone, value.name) if gone else partial(groups.queue_changed, value)
        await self._inbox.put_in_time(told)


class DocumentsSink:
    """Tells the owner of ConfigMaps that speak of nodes."""

    def __init__(self, place: Place, owner: Owner, inbox: Inbox) -> None:
        self._place = place
        self._owner = owner
        self._inbox = inbox

    async def on_replace(self, objects: Sequence[ConfigMap], resource_version: str) -> None:
        """These, and no others, exist."""
        await self._inbox.put_and_wait(partial(self._owner.nodes.documents_replaced, self._place, objects))

    async def on_event(self, kind: EventKind, value: ConfigMap) -> None:
        """One appeared, changed or went."""
        gone = kind is EventKind.DELETED
        await self._inbox.put_in_time(partial(self._owner.nodes.documents_changed, self._place, value, gone=gone))


def forgiving_pods(owner: Owner) -> Forgiving[Pod]:
    """Reads pods for *owner*."""

    def salvage(text: bytes) -> Pod:
        tables = owner.ledger.tables
        return salvage_pod(
            text, {name for one in owner.ledger.catalog.dialects.values() for name in one.resources(tables)}
        )

    def tell(pod: Pod, error: InvalidRequestError) -> None:
        _log.warning("a pod cannot be read", pod=pod.key, reason=str(error))
        rest = "its node takes no new shares of what it names" if pod.node_name else "it is not placed"
        message = f"cannot be read by cardshare, and {rest}: {error}"
        owner.planner.actions.append(Announce(about=about_pod(pod), reason="ObjectUnreadable", message=message))

    return Forgiving(decode_pod, salvage, tell)


def forgiving_nodes(owner: Owner) -> Forgiving[Node]:
    """Reads nodes for *owner*."""

    def tell(node: Node, error: InvalidRequestError) -> None:
        _log.warning("a node cannot be read", node=node.name, reason=str(error))
        about = Subject(kind="Node", name=node.name, uid=node.uid)
        message = f"cannot be read by cardshare, and nothing is placed there: {error}"
        owner.planner.actions.append(Announce(about=about, reason="ObjectUnreadable", message=message))

    return Forgiving(decode_node, salvage_node, tell)


def pods_reflector(
    source: Source, owner: Owner, inbox: Inbox, decode: Forgiving[Pod], others: VolcanoName
) -> Reflector[Pod]:
    """Keeps the owner told of every pod of the cluster."""
    return Reflector(
        source,
        PODS_PATH,
        decode_list=page_decoder(decode),
        decode_event=event_decoder(decode),
        sink=PodSink(owner, inbox, others),
        pace=_PACE,
    )


async def pods_on(source: listing.Source, node: NodeName) -> Sequence[Pod]:
    """The pods of *node* as the API server has them now.

    Raises:
        ApiError: it does not answer.
        UndecodableError: one of them cannot be read.
    """
    selectors = {"fieldSelector": f"spec.nodeName={node}"}
    return (await listing.list_all(source, PODS_PATH, page_decoder(decode_pod), selectors=selectors)).items


def nodes_reflector(source: Source, owner: Owner, inbox: Inbox, decode: Forgiving[Node]) -> Reflector[Node]:
    """Keeps the owner told of every node."""
    return Reflector(
        source,
        NODES_PATH,
        decode_list=page_decoder(decode),
        decode_event=event_decoder(decode),
        sink=NodeSink(owner, inbox),
        pace=_PACE,
    )


def forgiving_groups(kind: GroupKind, owner: Owner) -> Forgiving[GroupSpec]:
    """Reads PodGroups of *kind* for *owner*."""

    def tell(spec: GroupSpec, error: InvalidRequestError) -> None:
        _log.warning("a PodGroup cannot be read", group=str(spec.key), reason=str(error))
        about = Subject(kind="PodGroup", namespace=spec.key.namespace, name=spec.key.name, uid=spec.uid)
        message = f"cannot be read by cardshare, and none of its members is placed: {error}"
        owner.planner.actions.append(Announce(about=about, reason="ObjectUnreadable", message=message))

    return Forgiving(DECODERS[kind], partial(salvage_group, kind), tell)


def forgiving_queues(owner: Owner) -> Forgiving[QueueSpec]:
    """Reads Queues for *owner*."""

    def tell(queue: QueueSpec, error: InvalidRequestError) -> None:
        _log.warning("a Queue cannot be read", queue=queue.name, reason=str(error))
        about = Subject(kind="Queue", name=queue.name, uid=queue.uid)
        message = f"cannot be read by cardshare, and takes no groups: {error}"
        owner.planner.actions.append(Announce(about=about, reason="ObjectUnreadable", message=message))

    return Forgiving(decode_queue, salvage_queue, tell)


GROUP_PATHS: Final = {
    GroupKind.VOLCANO: "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    GroupKind.NATIVE: "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    GroupKind.COSCHEDULING: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
}
_QUEUES_PATH: Final = "/apis/scheduling.volcano.sh/v1beta1/queues"


def groups_reflector(source: Source, kind: GroupKind, owner: Owner, inbox: Inbox) -> Reflector[GroupSpec]:
    """Keeps the owner told of PodGroups of *kind*, which need not be installed."""
    decode = forgiving_groups(kind, owner)
    return Reflector(
        source,
        GROUP_PATHS[kind],
        decode_list=page_decoder(decode),
        decode_event=event_decoder(decode),
        sink=GroupSink(kind, owner, inbox),
        pace=_OPTIONAL,
        absent_is_empty=True,
    )


def queues_reflector(source: Source, owner: Owner, inbox: Inbox) -> Reflector[QueueSpec]:
    """Keeps the owner told of Volcano's queues, which need not be installed."""
    decode = forgiving_queues(owner)
    return Reflector(
        source,
        _QUEUES_PATH,
        decode_list=page_decoder(decode),
        decode_event=event_decoder(decode),
        sink=QueueSink(owner, inbox),
        pace=_OPTIONAL,
        absent_is_empty=True,
    )


def documents_reflector(source: Source, owner: Owner, inbox: Inbox, place: Place) -> Reflector[ConfigMap]:
    """Follows the ConfigMaps of one place that speak of nodes."""
    return Reflector(
        source,
        f"{namespace_path(place.namespace)}/configmaps",
        decode_list=page_decoder(decode_config_map),
        decode_event=event_decoder(decode_config_map),
        sink=DocumentsSink(place, owner, inbox),
        selectors={"labelSelector": place.selector},
        absent_is_empty=True,
    )
