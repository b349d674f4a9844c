"""The answer of the scheduler extender: which nodes would take a pod now. It reserves and remembers nothing.

For simulations such as Cluster Autoscaler's, which ask about nodes that do not exist yet. A node of the cluster is
judged by the ledger, whatever its object in the question says. Any other node is judged as a new, empty one: by the
cards that its annotations and capacity show, or else by those that `node_kinds` describe for its labels.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from controller.actions import Inbox
from controller.deciding.scheduler import Scheduler
from controller.reporting.serve import Turns
from controller.reporting.work import Work
from core.errors import InvalidRequestError
from core.explaining.refusal import refusal_on
from core.model import Node, NodeName
from core.placing.decide import Shape, placed_on, shape_of, takes
from core.wire.extender import ExtenderArgs, decode_extender_args, encode_filter_error, encode_filter_result
from core.wire.nodes import decode_node
from runtime.calls import Call, RefusedCallError, Reply

PATH: Final = "/v1/extender/filter"
# A large simulation may list all nodes with their objects.
BODY_MAX: Final = 16 * 2**20
# Callers wait 5 s by default.
LIMIT_S: Final = 3.0
_WAITING_MAX: Final = 16
_KEPT: Final = "kept free for another pod"
_ABSENT: Final = "no such node, and its object was not sent"


class Extender:
    """Serves `PATH`; questions are answered one at a time."""

    def __init__(
        self, scheduler: Callable[[], Scheduler | None], inbox: Inbox, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare; *scheduler* returns the state of the cluster, None while it is unknown. *clock*: monotonic."""
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._clock: Final = clock
        self._turns: Final[Turns[bytes]] = Turns("questions", _WAITING_MAX)

    async def answer(self, call: Call) -> Reply:
        """See `runtime.calls.Answer`."""
        if call.path != PATH:
            raise RefusedCallError(404, f"there is nothing here; use {PATH}")
        if call.method != "POST":
            raise RefusedCallError(405, "use POST", allow="POST")
        return Reply(await self._turns.answer("", lambda: self._filtered(call.body)))

    async def _filtered(self, text: bytes | bytearray) -> bytes:
        scheduler = self._scheduler()
        if scheduler is None:
            return encode_filter_error("the cluster is not known yet; see /readyz")
        try:
            async with asyncio.timeout(LIMIT_S):
                args = decode_extender_args(text)
                await self._inbox.settled()
                return await self._judged(scheduler, args)
        except InvalidRequestError as e:
            return encode_filter_error(str(e))
        except TimeoutError:
            return encode_filter_error(f"not every node could be judged within {LIMIT_S:g} s; ask about fewer nodes")

    async def _judged(self, scheduler: Scheduler, args: ExtenderArgs) -> bytes:
        ledger, pod = scheduler.cluster.ledger, args.pod
        if pod.scheduler_name not in ledger.settings.scheduler_names:
            return encode_filter_result(args, {})  # another scheduler's pod
        shape = shape_of(pod, ledger)
        if not isinstance(shape, Shape):
            return encode_filter_result(args, {one.name: shape.text for one in args.candidates})
        kept = scheduler.reservations.barred_to_new(scheduler.cluster.groups.standing(pod).priority)
        work, tables, refused = Work(self._clock), ledger.tables, dict[str, str]()
        for one in args.candidates:
            name = NodeName(one.name)
            if name in ledger.states:
                why = _KEPT if name in kept else _why_not(scheduler, args, shape, name)
            else:
                why = _why_not_new(scheduler, shape, decode_node(one.text)) if one.text else _ABSENT
            if why:
                refused[one.name] = why
            await work.give_way()
            if scheduler.cluster.ledger.tables is not tables:
                return encode_filter_error("the configuration changed meanwhile; ask again")
        return encode_filter_result(args, refused)


def _why_not(scheduler: Scheduler, args: ExtenderArgs, shape: Shape, name: NodeName) -> str:
    """Return why node *name* of the cluster does not take the pod now; "" if it does, or has its place already."""
    ledger, policy = scheduler.cluster.ledger, scheduler.cluster.search.policy
    if ledger.node_of(args.pod.uid) == name or placed_on(ledger, policy, args.pod, shape, name) is not None:
        return ""
    refusal = refusal_on(ledger, shape, ledger.states[name], policy.cards)
    if refusal is None:
        return "it does not take the pod now"
    return f"{refusal.key} ({refusal.detail})" if refusal.detail else refusal.key


def _why_not_new(scheduler: Scheduler, shape: Shape, node: Node) -> str:
    """Return why a new node like *node* does not take the pod; "" if it does."""
    kind = scheduler.cluster.search.kinds.like(node)
    ledger, state = scheduler.cluster.ledger, kind.state
    if not state.cards(shape.dialect):
        return "it has no such cards; describe its kind in node_kinds, with labels that it has"
    bar = next(ledger.constraints.bars(shape.asked, state.facts), None)
    if bar is not None:
        return bar.key
    if ledger.constraints.refuses_new(shape.asked, state.facts.labels):
        return "other pods keep it away"
    if not takes(ledger, shape, state, scheduler.cluster.search.policy.cards):
        return "a new, empty node of this kind does not take it"
    return ""
