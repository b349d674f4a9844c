"""The pods of the vGPU protocol: what they ask for and hold, what the plugin is told, and which it could confuse.

Each container has a segment (S24), every entry counts (S2), MIG slices count by their size. The plugin compares the
devices left in all segments with what kubelet asks for one container (P1). So a Binding shows it the first container's
segment only; the others are kept back in an annotation of ours, and whenever the plugin has served one, admission puts
the next in its place in the same write (`rotate`).

Source: protocol reference, nvidia 1.9, 1.10, 2.1, 2.4 step 9, 2.8, 2.9, 3.1, 3.5 to 3.10, 3.13, 4.2, with the defects
S19 to S25 done as they say.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from core import names
from core.dialects.vgpu import keys
from core.dialects.vgpu.cards import cards_of
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.errors import InvalidRequestError
from core.model import AnyPod, Container, Node, Pod
from core.names import MAX_POD_ANNOTATION_BYTES, MEMORY_UNIT, SEGMENT_QUEUE, VGPU_REGISTER
from core.port.cards import Held
from core.port.dialect import CardStock
from core.port.handoff import InFlight, Progress, Stamp
from core.port.refusals import Reason, Shortfall, Violation
from core.selection import type_words
from core.settings import Policy, Tables
from core.sharing import account
from core.sharing.account import (
    Assignment,
    Entry,
    Unread,
    Written,
    assigned,
    entries,
    fullness,
    later,
    take,
    with_whole,
)
from core.sharing.card import HAMI_CORE, MIG, MODES, Card
from core.sharing.fit import BY_USE, Rules
from core.sharing.order import Ranking
from core.sharing.request import (
    Ask,
    Figures,
    Order,
    Request,
    cards_at_start,
    check_words,
    judged,
    miscounted,
    selection_of,
    uncounted_shares,
)
from core.sharing.slices import UNKNOWN, Slice, choose, profile_at
from core.units import MAX_INT32, parse_int64, parse_memory
from core.warnings import AdmissionWarning, all_memory, another_effect, limit_of, little_memory, no_effect
from core.wire.reading import check_length
from core.wire.vgpu_register import decode_register


def request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, if the device plugin can also be told so; see `readable_request`."""
    named = tables.of(VgpuTable).named
    # Init containers get no card, whatever they ask for.
    unservable = cards_at_start(
        pod, named.cards, lambda one: any((one.amount(key) or "").strip("0") for key in named.all)
    )
    unservable += uncounted_shares([("container", one) for one in pod.containers], named, implied=True)
    return judged(readable_request(pod, tables), unservable)


def readable_request(pod: AnyPod, tables: Tables) -> Request | tuple[Violation, ...] | None:
    """Return what *pod* asks, however many its containers; None if nothing, violations if it cannot be read."""
    violations: list[Violation] = []
    asks = asks_of(pod, tables.of(VgpuTable), violations)
    if not asks and not violations:
        return None
    annotations = pod.annotations
    wish = selection_of(annotations, keys.USE_UUID, keys.NO_USE_UUID, violations)
    mode = annotations.get(keys.MODE, "")
    modes = (mode,) if mode.strip() else ()
    check_words(keys.MODE, modes, MODES, violations)
    if wish.indices and len(wish.indices) < (most := max([ask.number for ask in asks], default=0)):
        violations.append(miscounted(pod, "at least", tables.of(VgpuTable).named.cards, most))
    if violations:
        return tuple(violations)
    # Other groups do not matter: pods that differ by their group alone have one shape.
    group = group_of(pod) if annotations.get(keys.GROUP_POLICY) == keys.SPREAD_GROUP else ""
    return Request(asks, asks[-1].container + 1, wish, modes, marks=marks_of(group, matched_rules(pod, tables)))


def group_of(pod: AnyPod) -> str:
    """namespace/name of the pod group, "" without one (nvidia 3.9)."""
    for key in names.GROUP_NAME_KEYS:
        name = pod.annotations.get(key)
        if name:
            return f"{pod.namespace}/{name}"
    return ""


def matched_rules(pod: AnyPod, tables: Tables) -> tuple[int, ...]:
    """The exclusive rules that *pod* matches, by index; a rule without labels matches nobody."""
    rules = tables.of(ExclusiveRules).rules
    return tuple(index for index, rule in enumerate(rules) if rule and rule <= pod.labels.items())


def asks_of(pod: AnyPod, table: VgpuTable, violations: list[Violation]) -> tuple[Ask, ...]:
    """Return what the containers ask, and add what is wrong with their figures; init containers do not count.

    A container with memory, cores or a percentage but no number asks for one card (S25); number 0 asks for nothing
    (S21).
    """
    found: list[Ask] = []
    named = table.named
    names = (named.cards, named.memory, named.cores, named.percentage)
    for position, one in enumerate(pod.containers):
        if one.limits.keys().isdisjoint(names) and one.requests.keys().isdisjoint(names):
            continue
        wrong: list[Violation] = []
        ask = _ask(Figures(one, "container", wrong), position, table)
        if ask.number:
            violations += wrong
            found.append(ask)
    return tuple(found)


def _ask(figures: Figures, position: int, table: VgpuTable) -> Ask:
    named = table.named
    number = figures.read(named.cards, "CS101")
    as_memory = partial(parse_memory, mib_per_unit=named.mib_per_unit) if named.mib_per_unit > 1 else parse_memory
    memory = figures.read(named.memory, "CS101", parse=as_memory) or 0
    percent = figures.read(named.percentage, "CS102", 1, 100) or 0
    cores = figures.read(named.cores, "CS103", maximum=100) or 0
    if not percent and not memory:
        percent = 100
    # The percentage overrides the memory if both are given, as upstream has it.
    return Ask(position, 1 if number is None else number, 0 if percent else memory, percent, cores)


_GROUP: Final = "group "
_RULE: Final = "rule "
_UNORDERED: Final = f"the node's device plugin may change the order of its cards; name them with {keys.USE_UUID}"


def marks_of(group: str, rules: Sequence[int]) -> tuple[str, ...]:
    """Return what a pod of pod group *group*, "" without one, that matches the exclusive *rules* carries to cards."""
    return tuple(sorted([_GROUP + group] * bool(group) + [f"{_RULE}{one}" for one in rules]))


def without_group(marks: tuple[str, ...]) -> tuple[str, ...]:
    """Return *marks* of a share of nothing, which keeps no pod of its group away."""
    return tuple([one for one in marks if not one.startswith(_GROUP)])


class VgpuRules(Rules):
    """The rules of the vGPU protocol; limits are applied in bus order in a container, so entries are too (S33)."""

    by_position = True

    def refuse(self, card: Card, ask: Ask, request: Request) -> Reason | None:
        """Return that a pod of the same group, or of the same exclusive rule, is on the card."""
        met = set(request.marks).intersection(card.marks)
        if any(one.startswith(_RULE) for one in met) and card.fixed.kind.mode != MIG:
            return Reason.RULE
        return Reason.GROUP if any(one.startswith(_GROUP) for one in met) else None

    def shortfall(self, card: Card, ask: Ask, request: Request, reason: Reason) -> Shortfall | None:
        """See `Rules`."""
        match reason:
            case Reason.GROUP:
                group = next((one for one in request.marks if one.startswith(_GROUP)), _GROUP)
                detail = f"a pod of {group} is on the card"
            case Reason.RULE:
                detail = "a pod of the same exclusive rule is on the card"
            case Reason.UNORDERED:
                detail = _UNORDERED
            case _:
                return None
        return Shortfall(card.fixed.uuid, reason, detail=detail)

    def ranking(self, wanted: Order, policy: Policy) -> Ranking:
        """Return the order of upstream: the fullest, the one with the fewest shares, or the last."""
        return BY_USE.get(policy, lambda slot, _: (-slot,))

    def score(self, cards: Sequence[Card], entries: Sequence[Entry], request: Request, policy: Policy) -> float:
        """Return the sum of what the containers score one after the other."""
        if policy not in (Policy.BINPACK, Policy.SPREAD):
            return 0.0
        if len(request.asks) == 1:
            return _scored(cards, entries, policy)
        total = 0.0
        filled = tuple(cards)
        for _, some in groupby(entries, key=lambda one: one.container):
            shares = list(some)
            total += _scored(filled, shares, policy)
            filled = take(filled, assigned(0, shares))
        return total

    def idle_score(self, request: Request, idle: int, policy: Policy) -> float:
        """See `Rules`; slices can fill cards to the last."""
        if policy is Policy.BINPACK:
            return 100.0 * sum([ask.number for ask in request.asks])
        return super().idle_score(request, idle, policy)


def _scored(cards: Sequence[Card], shares: Sequence[Entry], policy: Policy) -> float:
    """Return what the *shares* of one container score on *cards* as it finds them."""
    if policy is Policy.SPREAD:
        # A card scores by what it was before it took the share (S10).
        return 100.0 * sum([not cards[one.slot].used_slots for one in shares])
    # Slices can fill a card beyond its memory; no bound of several containers knows by how much.
    return min(fullness(cards, shares), 100.0 * len(shares))


# More card models than these are not told apart: the first ones show what is meant.
_MODELS_MAX: Final = 3


def warnings(pod: AnyPod, request: Request, tables: Tables) -> Iterator[AdmissionWarning]:
    """CS116 and CS119 for *pod*, which asks *request*."""
    for one in pod.containers:
        yield from _shares(one, request, tables.of(VgpuTable))
    word = pod.annotations.get(keys.GROUP_POLICY)
    if word is not None and word not in ("", keys.SPREAD_GROUP):
        why, remedy = "the one word that is read is spread", "write spread, or leave it out"
        yield no_effect(f"annotation {keys.GROUP_POLICY}", word, why, remedy)


def _shares(one: Container, request: Request, table: VgpuTable) -> Iterator[AdmissionWarning]:
    """The percentage holds over the memory, 0 is no amount, and MIG limits no cores."""
    memory, percent = one.amount(table.named.memory), one.amount(table.named.percentage)
    if memory is not None and percent is not None:
        why = f"{table.named.percentage} {percent} overrides it"
        yield no_effect(limit_of(one, table.named.memory), memory, why, "leave one of the two out")
    elif memory == "0":
        yield all_memory(one, table.named.memory)
    else:
        yield from little_memory(one, table.named.memory, table.named.mib_per_unit)
    cores = one.amount(table.named.cores)
    if cores not in (None, "0") and request.modes == (MIG,):
        what = "it limits no cores, because in mode mig a slice brings its own: it only keeps other pods away"
        takes_all = f"; without {table.named.memory} it takes all memory of a card"
        remedy = "leave it out" + (takes_all if memory is None and percent is None else "")
        yield another_effect(limit_of(one, table.named.cores), cores, what, remedy)


class Grant(NamedTuple):
    """The slice that *wanted_mib* get on an empty card of *model*."""

    wanted_mib: int
    slice_mib: int
    profile: str
    model: str


def advice(
    pod: AnyPod, request: Request, tables: Tables, stock: CardStock[Request] | None
) -> Iterator[AdmissionWarning]:
    """CS113: MIG gives whole slices, which may be larger than what was asked for.

    Told of pods in mode mig, and of those that name no mode where this cluster serves them by MIG alone.
    """
    why = "mode mig gives whole slices only"
    there = stock.types() if stock is not None else None
    grants = larger_slices(request._replace(modes=request.modes or (MIG,)), tables.of(VgpuTable), there)
    if grants and not request.modes:
        if not _is_for_mig(request, stock):
            return
        why = "only cards in mode mig can take it here, and these give whole slices"
    for wanted_mib, some in groupby(grants, lambda one: one.wanted_mib):
        told = [f"{one.slice_mib} MiB ({one.profile}) on {one.model}" for one in some]
        text = ", or ".join(told[:_MODELS_MAX])
        yield AdmissionWarning("CS113", f"{wanted_mib} MiB may get a slice of {text}: {why}")


def _is_for_mig(request: Request, stock: CardStock[Request] | None) -> bool:
    """Whether, of this cluster's cards, certainly none but those in mode mig take *request*."""
    if stock is None:
        return False
    # Who asks for hami-core gets cards in mode mps as well, so that no third mode is left.
    others = stock.takes(request._replace(modes=(HAMI_CORE,)))
    return others is False and stock.takes(request._replace(modes=(MIG,))) is True


def larger_slices(request: Request, table: VgpuTable, there: Collection[str] | None = None) -> tuple[Grant, ...]:
    """What each container's memory becomes on the card models that the pod accepts, where that is more.

    Only for pods of mode mig; one entry per profile and wanted figure, smallest slice first. A percentage depends on
    the card and is left out. *there* are the types of the cluster's cards, None where they are not known.
    """
    if request.modes != (MIG,):
        return ()
    factor = table.named.mib_per_unit
    found: dict[tuple[int, str], Grant] = {}
    for ask in request.asks:
        wanted_mib = ask.memory * factor
        for geometry in table.geometries if not ask.percent else ():
            chosen = choose(geometry.layout, (), wanted_mib)
            if chosen is None or chosen.profile.memory_mib <= wanted_mib:
                continue
            size, name = chosen.profile.memory_mib, chosen.profile.name
            models = [
                model
                for model in geometry.models
                if (there is None or any(model in one for one in there))
                and request.selection.accepts_type(type_words(f"NVIDIA-{model}"))
            ]
            if models:
                found.setdefault((wanted_mib, name), Grant(wanted_mib, size, name, models[0]))
    return tuple(sorted(found.values()))


_MAX_UINT32: Final = 2**32 - 1
_FIELD: Final = f"annotation {keys.IDS}"
# What the plugin writes when it is done.
_DONE_TIME: Final = str(2**64 - 1)
# Dialect and version of what is kept back, then segments as in ``devices-to-allocate``, each at its container's place.
_QUEUE_HEAD: Final = "vgpu/1 "


def decode_pod_devices(text: str) -> tuple[tuple[Written | Unread, ...], ...]:
    """Read an assignment; an empty text has no segment. What cannot be read stays, as `Unread`.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    if not text:
        return ()
    check_length(text, _FIELD)
    return tuple(tuple(entries(segment, _MAX_UINT32)) for segment in text.split(";"))


def decode_slice_id(text: str) -> Slice | None:
    """Read the slice in ``uuid[group-position]``; None if the text has no such form."""
    inner, closing, _ = text.partition("[")[2].partition("]")
    parts = inner.split("-")
    position = parse_int64(parts[1]) if closing and len(parts) == 2 else None
    return None if position is None else Slice(parts[0], position)


def held(pod: Pod, cards: Sequence[Card], tables: Tables) -> Held[Assignment] | None:
    """Return what bound *pod* holds by its annotations, whichever scheduler bound it; None if they name no card.

    An unreadable entry takes the whole card that it names. If it names no card of the node, the node is closed, because
    it may mean any card. A readable entry for a card that is gone does not count.
    """
    text = pod.annotations.get(keys.IDS)
    if text is None:
        return None
    try:
        segments = decode_pod_devices(text)
    except InvalidRequestError as error:
        return Held(assignment=Assignment(0, (), ()), closes=f"pod {pod.key}: {error}")
    if not any(segments):
        return None
    listed = account.listed(pod, cards, _FIELD, segments, range(len(segments)), finish=_finish)
    marks = marks_of(group_of(pod), matched_rules(pod, tables))
    found = assigned(len(segments), listed.entries, marks=marks, unread=listed.unread)
    if marks and not all(one.memory or one.cores for one in found.charges):
        charges = [
            one if one.memory or one.cores else one._replace(marks=without_group(one.marks)) for one in found.charges
        ]
        found = found._replace(charges=tuple(charges))
    return Held(assignment=found, closes=listed.closes)


def _finish(at: int, device: int, one: Written, entry: Entry, card: Card | None) -> tuple[Entry, bool]:
    if card is None:
        return entry, True
    if card.fixed.kind.mode != MIG:
        # A slice of a card that is not cut any more, or not yet again: it takes what it says, and nothing joins it.
        return entry._replace(slice=UNKNOWN) if one.name != entry.uuid else entry, True
    # On a MIG card only slices of its layouts can be counted; all else closes the card (S32).
    place = decode_slice_id(one.name)
    profile = profile_at(card.fixed.kind.layout, place) if place is not None else None
    if profile is None:
        return entry._replace(slice=UNKNOWN), True
    return entry._replace(charge=profile.charge, slice=place, profile=profile.name), True


def annotations(assignment: Assignment, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
    """What the Binding must carry for the plugin to find this pod; later containers' segments are kept back."""
    # Segments up to the last container with a card (S24), parted by semicolons.
    text = account.wire_text(assignment, "NVIDIA").removesuffix(";")
    first = next((place for place, segment in enumerate(text.split(";")) if segment), -1)
    shown, queue = _split(text, first)
    found = {
        keys.NODE: stamp.node,
        keys.TIME: str(stamp.order),
        keys.IDS: text,
        keys.TO_ALLOCATE: shown,
        keys.BIND_PHASE: keys.ALLOCATING,
        keys.BIND_TIME: str(stamp.now_s),
    }
    if queue:
        found[SEGMENT_QUEUE] = queue
    return found


def rotate(old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str | None]:
    """What a plugin's write from annotations *old* to *new* must carry besides; nothing unless it served a container.

    In place of the erased segment, the next is shown and the queue shortened in that write; an empty queue stays until
    the last one is erased. A plugin that reads back what it wrote (P21) finds the next segment instead, and erases once
    more: that stands, and the segment waits in the queue until the plugin writes `success`. The phase goes back to
    `allocating`, because admission sees only writes that change something, and an earlier container may have left
    `success` there. Asked again about its own answer, there is nothing to do.
    """
    queue = old.get(SEGMENT_QUEUE, "")
    if not queue.startswith(_QUEUE_HEAD) or new.get(SEGMENT_QUEUE) != queue:
        return {}
    before, after = old.get(keys.TO_ALLOCATE, ""), new.get(keys.TO_ALLOCATE)
    if after is None or max(map(len, (queue, before, after))) > MAX_POD_ANNOTATION_BYTES or devices_left(after):
        return {}
    waiting = queue.removeprefix(_QUEUE_HEAD)
    shown_at = before.count(";")
    if devices_left(before) and after.count(";") < shown_at:
        # Segments stand at their container's place, so that this value belongs to a container before this one.
        behind = waiting.removeprefix(";" * (shown_at + 1))
        return {SEGMENT_QUEUE: f"{_QUEUE_HEAD}{before};{behind}", keys.BIND_PHASE: keys.ALLOCATING}
    if not devices_left(before) and new.get(keys.BIND_PHASE) != keys.SUCCESS:
        return {}
    place = next((place for place, piece in enumerate(waiting.split(";")) if devices_left(piece)), -1)
    if place < 0:
        return {SEGMENT_QUEUE: None}
    shown, left = _split(waiting, place)
    return {keys.TO_ALLOCATE: shown, SEGMENT_QUEUE: left or _QUEUE_HEAD}


def metered(assignment: Assignment, tables: Tables) -> dict[str, int]:
    """As written, in units: Volcano counts what pods ask, not the slices that they get."""
    named = tables.of(VgpuTable).named
    memory, cores = sum([one.memory for one in assignment.entries]), sum([one.cores for one in assignment.entries])
    # A percentage counts as the memory that it becomes.
    found = {named.memory: memory, named.cores: cores}
    if named.percentage:
        found[named.percentage] = 0
    return found


def next_stamp(pods: Sequence[Pod], now_s: int) -> int:
    """Above the time of every pod of the node that has devices left to allocate, and above now."""
    open_pods = [one for one in pods if one.annotations.get(keys.TO_ALLOCATE) or one.annotations.get(SEGMENT_QUEUE)]
    return later([pod.annotations.get(keys.TIME, "") for pod in open_pods], now_s)


def confusable(request: Request) -> frozenset[Hashable]:
    """The plugin knows a pod only by how many devices are left to it."""
    return frozenset(_mark(ask.number) for ask in request.asks)


def in_flight(pod: Pod, tables: Tables) -> InFlight | None:
    """*pod* as the plugin sees it: a candidate while its annotations name a node and devices are left.

    A pod that has started is done; what it has left, another pod could be given, so it is cleared. One that is deleted
    before keeps what it has left until it is gone: kubelet may be asking for it just now. So does one that is called
    served: the plugin writes that by the pod's name, and may mean a pod of that name that was removed by force.
    """
    node = pod.annotations.get(keys.NODE, "")
    if not node:
        return None
    text, queue = pod.annotations.get(keys.TO_ALLOCATE, ""), pod.annotations.get(SEGMENT_QUEUE, "")
    unread = max(len(text), len(queue)) > MAX_POD_ANNOTATION_BYTES
    left = 0 if unread else devices_left(text)
    queued = () if unread else _queued(queue)
    rests = ((keys.TO_ALLOCATE, left or (unread and text)), (SEGMENT_QUEUE, queue))
    cleanup = {key: "" for key, rest in rests if rest} or None
    # What waits in the queue is asked for while the pod is still being admitted: it occupies from the beginning.
    marks: frozenset[Hashable] = frozenset(_mark(number) for number in (left, *queued) if number)
    phase = pod.annotations.get(keys.BIND_PHASE, "")
    if unread or phase == keys.FAILED or pod.finished:
        return InFlight(pod=pod.uid, progress=Progress.FAILED, confusable=marks, cleanup=cleanup, node=node)
    if pod.started or not marks:
        return InFlight(pod=pod.uid, progress=Progress.DONE, confusable=frozenset(), cleanup=cleanup, node=node)
    left_over = None if pod.node_name else cleanup
    return InFlight(pod=pod.uid, progress=Progress.WAITING, confusable=marks, cleanup=left_over, node=node)


def retirement(pod: Pod) -> Mapping[str, str]:
    """What takes *pod* out of the candidates of a plugin that goes by time alone."""
    timed = keys.NODE in pod.annotations and pod.annotations.get(keys.TIME, _DONE_TIME) != _DONE_TIME
    return {keys.TIME: _DONE_TIME} if timed else {}


def devices_left(text: str) -> int:
    """How many devices the plugin counts in ``devices-to-allocate``, whether it can read them or not."""
    return sum(1 for segment in text.split(";") for piece in segment.split(":") if "," in piece)


def _split(text: str, place: int) -> tuple[str, str]:
    """(the segment at *place* alone, the queue of those behind it or ""), each segment where it stands in *text*."""
    pieces = text.split(";")
    behind = [piece if at > place else "" for at, piece in enumerate(pieces)]
    shown = ";" * place + pieces[place] if place >= 0 else text
    return shown, _QUEUE_HEAD + ";".join(behind) if any(behind) else ""


def _queued(queue: str) -> tuple[int, ...]:
    """How many devices each segment kept back has."""
    if not queue.startswith(_QUEUE_HEAD):
        return ()
    return tuple(devices_left(piece) for piece in queue.removeprefix(_QUEUE_HEAD).split(";"))


def _mark(devices: int) -> Hashable:
    return ("vgpu devices", devices)


# A driver reports some MiB more or less from one version to the next, never a fifth.
_MOST_IN_20: Final = 25
_LEAST_IN_20: Final = 16


class Scale(NamedTuple):
    """In which unit amounts of memory are written, kept beside them: it is the device plugin's, and may change.

    A plugin that starts with another factor registers its cards in another unit, while the pods that it served before
    keep their amounts as they are. Of cards in mode mig slices count, whatever the unit.

    factor: MiB per unit as configured; cards: uuid -> memory in the units of its register, where it is known.
    """

    factor: int
    cards: Mapping[str, int]


def scale_of(node: Node | None, cards: Sequence[Card], tables: Tables) -> Scale:
    """What amounts mean on *node*, by its register also where its plugin is away and it offers no *cards*."""
    if not cards and node is not None:
        cards = _registered(node, tables)
    known = {card.fixed.uuid: card.fixed.memory for card in cards if not card.fixed.kind.layout}
    return Scale(tables.of(VgpuTable).named.mib_per_unit, known)


def _registered(node: Node, tables: Tables) -> Sequence[Card]:
    try:
        return cards_of(decode_register(node.annotations.get(VGPU_REGISTER, ":")), tables.of(VgpuTable))
    except InvalidRequestError:
        return ()


def rescaled(assignment: Assignment, since: Scale, now: Scale) -> tuple[Scale, Assignment, str]:
    """See `core.port.spec.Scaling`; *assignment* is counted by *since*."""
    alike = since.factor == now.factor
    unclear: dict[str, str] = {}
    for entry in assignment.entries:
        old, new = since.cards.get(entry.uuid), now.cards.get(entry.uuid)
        alike = alike and old == new
        if not (new and entry.memory):
            continue
        if since.factor != now.factor:
            why = f"counts memory in units of {since.factor} MiB, and the configuration says {now.factor} MiB"
        elif old and not _LEAST_IN_20 * old <= 20 * new <= _MOST_IN_20 * old:
            why = f"has {entry.memory} of the {old} units that {entry.uuid} had, and it has {new} now"
        else:
            continue
        unclear.setdefault(entry.uuid, why)
    if unclear:
        return since, with_whole(assignment, unclear), next(iter(unclear.values()))
    # One value for all pods of a node, where both say the same.
    return (now if alike else since), assignment, ""


def scale_told(assignment: Assignment, scale: Scale) -> dict[str, str]:
    """What the Binding carries of *scale*: the factor, and what each entry's card has in its register."""
    return {MEMORY_UNIT: _scale_text(assignment, scale)}


def _scale_text(assignment: Assignment, scale: Scale) -> str:
    memory = [str(scale.cards.get(entry.uuid, 0)) for entry in assignment.entries]
    return f"{scale.factor}:{','.join(memory)}"


def scale_read(pod: Pod, assignment: Assignment, now: Scale) -> Scale | None:
    """The scale that bound *pod* tells of, *now* if it says the same; None if it tells of none that can be read."""
    text = pod.annotations.get(MEMORY_UNIT, "")
    if not text or len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    if text == _scale_text(assignment, now):
        return now
    factor, _, rest = text.partition(":")
    figures = [_figure(piece) for piece in (factor, *rest.split(","))]
    if len(figures) != len(assignment.entries) + 1 or None in figures:
        return None
    first, *memory = (figure or 0 for figure in figures)
    return Scale(first, {one.uuid: amount for one, amount in zip(assignment.entries, memory, strict=True) if amount})


def _figure(text: str) -> int | None:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    return value if 0 <= value <= MAX_INT32 else None
