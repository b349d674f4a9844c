"""How many equal pods fit now, on which cards, and what blocks the next; ``kubectl cards fits``. Pure.

Pods are placed on a copy of the ledger, one at a time, until the placing core refuses; there is no separate estimate.
Fields may be added; renaming a field or changing its meaning requires another *version*.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Final, NamedTuple, TypedDict

from core import model
from core.catalog import Asked
from core.constraints.quota import QUOTA, Account, Budget, Limited, Over, budget, in_units, over_wait, taken
from core.explaining import explain
from core.ledger import Ledger, Placement
from core.model import NO_VOLUMES, Container, Pod, PodUid
from core.placing.decide import NodePolicy, Shape, node_policy, placed_on, shape_of, try_decide
from core.port.cards import CardWish, Wording
from core.settings import DialectName
from core.view.cards import VERSION
from core.waiting import Wait, said_in
from core.wire.policies import ResourceQuota

# The limit of counted pods, whose placement takes some seconds.
COUNT_MAX: Final = 100_000
# Prefixes of the resources of a ResourceQuota.
REQUESTS, LIMITS = "requests.", "limits."
# No request is larger, in MiB or in cards.
_MOST: Final = 2**26
_NAME: Final = "fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitType:
    """*pods* that fit on cards of one type, on *nodes*; a pod on cards of several types lists all of them."""

    type: str
    pods: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How many pods fit with one form of request.

    protocol: the protocol of the request, "" without cards. limits, annotations: what to write on a container and its
    pod;
    empty for a manifest. is_all: False if counting stopped before the cluster was full. largest_memory_mib: the most
    memory that one pod can get on each of the same number of cards; largest_cards: the most cards that it can get with
    the same memory on each; None if not requested. code, stops: why another pod does not fit. nearest, change: as in
    ``waiting``.
    """

    protocol: str
    limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pods: int
    is_all: bool
    types: tuple[FitType, ...] = ()
    largest_memory_mib: int | None = None
    largest_cards: int | None = None
    code: str = ""
    stops: str = ""
    nearest: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """The answer of ``fits``: one entry for each form of request; pods of two forms may compete for the same cards."""

    version: int = VERSION
    namespace: str
    ways: tuple[Fit, ...]
    notes: tuple[str, ...] = ()


class Place(NamedTuple):
    """Where pods are counted: on a copy of *ledger*, within what the *pods* of *namespace* leave of its *quotas*."""

    ledger: Ledger
    namespace: str
    quotas: Sequence[ResourceQuota] = ()
    pods: Sequence[Pod] = ()

    @property
    def policy(self) -> NodePolicy:
        """The policy for choosing nodes, as far as the settings define it."""
        return node_policy(self.ledger.settings)

    def budget(self) -> Budget | None:
        """Return what the quotas leave; None if nothing limits the namespace."""
        return budget(self.limited())

    def limited(self) -> Iterator[Limited]:
        """Yield the quotas: with `REQUESTS` as Kubernetes counts, without it as cardshare counts `LIMITS`."""
        held: Counter[str] = Counter()
        for pod in self.pods:
            holding = self.ledger.holding(pod.uid)
            if holding is not None:
                held.update(taken(self.ledger, pod, holding.dialect, holding.assignment))
        for one in self.quotas:
            account = Account(QUOTA, one.name, one.namespace)
            if one.scoped:
                continue
            in_all = {key.removeprefix(LIMITS): most for key, most in one.hard.items() if key.startswith(LIMITS)}
            words = self.ledger.words
            counted = {
                key: in_units(key, most, words, in_bytes=f"{LIMITS}{key}" in one.in_bytes)
                for key, most in in_all.items()
                if key in words.budgeted
            }
            yield Limited(account, counted, held)
            yield Limited(account, {key: most for key, most in one.hard.items() if key.startswith(REQUESTS)}, one.used)


def fits_wish(where: Place, wish: CardWish, notes: Sequence[str] = ()) -> Fits:
    """Return how many pods with one container and *wish* fit, for every protocol that supports it and has cards."""
    ledger, ways = where.ledger, list[Fit]()
    for way in ways_of(ledger, wish, where.namespace):

        def asking(wish: CardWish, way: Way = way) -> Wording | None:
            return next(islice(ledger.catalog.dialects[way.protocol].worded(wish, ledger.tables), way.at, None), None)

        largest = _largest(where, wish, asking)
        fit = _fit(where, way.pod, str(way.protocol))
        ways.append(replace(fit, limits=way.wording.limits, annotations=way.wording.annotations, **largest))
    return Fits(namespace=where.namespace, ways=tuple(ways), notes=tuple(notes))


class Way(NamedTuple):
    """One form of a request in one protocol, the *at*-th in that, and a pod with it."""

    protocol: DialectName
    at: int
    wording: Wording
    pod: Pod


def ways_of(ledger: Ledger, wish: CardWish, namespace: str) -> Iterator[Way]:
    """Yield every form of *wish* in a protocol that some node offers."""
    for name, dialect in ledger.catalog.dialects.items():
        offering = [state for state in ledger.states.values() if state.offers.get(name)]
        for at, wording in enumerate(dialect.worded(wish, ledger.tables)):
            pod = written(ledger, namespace, wording)
            asked = ledger.catalog.request_of(pod, ledger.tables, ledger.settings)
            if isinstance(asked, Asked) and asked.dialect != name:
                continue  # the resource means another protocol, which has its own turn
            if any(not wording.limits.keys().isdisjoint(state.facts.allocatable) for state in offering):
                yield Way(name, at, wording, pod)


def fits_pod(where: Place, pod: Pod, notes: Sequence[str] = ()) -> Fits:
    """Return how many pods like *pod* fit; its volume claims are not judged."""
    if pod.volumes != NO_VOLUMES:
        pod = pod._replace(volumes=NO_VOLUMES)
        notes = (*notes, "volume claims of the pod are not judged")
    found = where.ledger.catalog.request_of(pod, where.ledger.tables, where.ledger.settings)
    protocol = str(found.dialect) if isinstance(found, Asked) else ""
    return Fits(namespace=where.namespace, ways=(_fit(where, pod, protocol),), notes=tuple(notes))


def written(ledger: Ledger, namespace: str, wording: Wording) -> Pod:
    """Return a pod with one container and *wording*, as the API server would store it."""
    return Pod(
        uid=PodUid(_NAME),
        namespace=namespace,
        name=_NAME,
        scheduler_name=min(ledger.settings.scheduler_names),
        containers=(Container(name=_NAME, limits=wording.limits, requests=wording.limits),),
        annotations=wording.annotations,
    )


def _fit(where: Place, pod: Pod, protocol: str) -> Fit:
    shape = shape_of(pod, where.ledger)
    if isinstance(shape, Wait):
        return _told(Fit(protocol=protocol, pods=0, is_all=True), shape)
    copy, left = where.ledger.fork(), where.budget()
    pods, nodes = Counter[str](), dict[str, set[str]]()
    over: tuple[Over, ...] = ()
    is_all = True
    for placement in _placements(copy, where.policy, pod, shape):
        over = left.spend(_asked(copy, pod, placement)) if left is not None else ()
        is_all = pods.total() < COUNT_MAX
        if over or not is_all:
            break
        label = _label(copy, placement)
        copy.reserve(placement)
        pods[label] += 1
        nodes.setdefault(label, set()).add(placement.node)
    types = tuple(FitType(type=one, pods=many, nodes=len(nodes[one])) for one, many in sorted(pods.items()))
    found = Fit(protocol=protocol, pods=pods.total(), is_all=is_all, types=types)
    if over:
        return _over(found, tuple(one._replace(beside=0) for one in over))
    if not is_all:
        return found
    one_more = shape.beside(copy.constraints.pods_of(pod))
    return _told(found, explain.wait(explain.refused(copy, one_more, where.policy.cards)))


def _over(found: Fit, over: tuple[Over, ...]) -> Fit:
    """Return *found* with the blocking quota; the controller enforces ``limits.``, the API server the rest."""
    counted = next((one for one in over if one.resource.startswith(REQUESTS)), None)
    if counted is None:
        return _told(found, over_wait(over))
    quota = f"{counted.account.kind} {counted.account.name} of namespace {counted.account.namespace}"
    left = f"{counted.left} of {counted.limit} {counted.resource} left, and the pod asks for {counted.asked}"
    remedy = "ask for less, wait until pods of the namespace end, or raise the quota"
    return replace(found, stops=f"the API server rejects it: {quota} has {left}", change=remedy)


def _told(found: Fit, wait: Wait) -> Fit:
    said = said_in(wait.message)
    return replace(found, code=wait.cause.code, stops=wait.text, nearest=said.nearest, change=said.change)


def _placements(copy: Ledger, policy: NodePolicy, pod: Pod, shape: Shape) -> Iterator[Placement]:
    """Yield the placement of the pod, of another one like it, and so on; each is reserved in *copy* before the next."""
    if shape.asked.pods:
        # A pod's place may depend on the previous one's, even on another node.
        for at in count():
            found = try_decide(copy, policy, _numbered(pod, at), shape)
            if found is None:
                return
            yield found
    at = 0
    for name in sorted(copy.states):
        while (found := placed_on(copy, policy, _numbered(pod, at), shape, name)) is not None:
            yield found
            at += 1


def _numbered(pod: Pod, at: int) -> Pod:
    return pod._replace(uid=PodUid(f"{pod.uid}-{at}"))


def _asked(ledger: Ledger, pod: Pod, placement: Placement) -> Mapping[str, int]:
    """Return what *placement* uses of quotas: as HAMi counts, and as Kubernetes counts, under ``requests.``."""
    counted = {f"{REQUESTS}{name}": amount for name, amount in model.amounts_of(pod)}
    return {**taken(ledger, pod, placement.dialect, placement.assignment), **counted}


def _label(ledger: Ledger, placement: Placement) -> str:
    """Return the types of the cards of *placement*."""
    if placement.dialect is None:
        return ""
    dialect, cards = ledger.catalog.dialects[placement.dialect], ledger.states[placement.node].cards(placement.dialect)
    labels = {one.card: one.label for one in dialect.tally(cards)}
    shares = dialect.describe(placement.assignment, cards)
    return " + ".join(sorted({labels.get(one.whole, "") for one in shares} - {""}))


class _Largest(TypedDict):
    largest_memory_mib: int | None
    largest_cards: int | None


def _largest(where: Place, wish: CardWish, asking: Callable[[CardWish], Wording | None]) -> _Largest:
    """Return the most memory, and the most cards, that one pod otherwise like *wish* can get; 0 if none."""
    ledger, left = where.ledger, where.budget()

    def takes(wish: CardWish) -> bool:
        wording = asking(wish)
        if wording is None:
            return False
        pod = written(ledger, where.namespace, wording)
        shape = shape_of(pod, ledger)
        if isinstance(shape, Wait):
            return False
        for state in ledger.states.values():
            found = placed_on(ledger, where.policy, pod, shape, state.facts.name)
            if found is not None and (left is None or not left.lacks(_asked(ledger, pod, found))):
                return True
        return False

    return {
        "largest_memory_mib": None
        if wish.memory_mib is None
        else _most(lambda most: takes(wish._replace(memory_mib=most))),
        "largest_cards": _most(lambda most: takes(wish._replace(cards=most))),
    }


def _most(is_taken: Callable[[int], bool]) -> int:
    """Return the largest accepted amount, or 0; all smaller amounts must be accepted too."""
    limit = 1
    while limit < _MOST and is_taken(limit):
        limit *= 2
    return bisect_left(range(1, limit), True, key=lambda amount: not is_taken(amount))
