"""How many pods of one kind fit now, on which cards, and what stops the next; ``kubectl cards fits``. Pure.

Pods are placed on a copy of the ledger, one after the other, until the placing core says no: there is no other count.
Fields are added, never renamed or given another meaning without another *version*.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import Final, NamedTuple, TypedDict

from core import nodefit
from core.catalog import Asked
from core.explaining import explain
from core.explaining.asked import read_wish
from core.explaining.limits import over_wait
from core.explaining.reading_back import said_in
from core.ledger import Ledger, Placement
from core.model import NO_VOLUMES, Container, Pod, PodUid
from core.placing.decide import placed_on, try_decide
from core.placing.fairness import QUOTA, Account, Budget, Limited, Over, budget, taken
from core.placing.score import NodePolicy, node_policy
from core.placing.shape import Shape
from core.port.cards import CardWish, Wording
from core.port.optional import Worded
from core.view.cards import VERSION
from core.waiting import Wait
from core.wire.quotas import ResourceQuota

# No more pods are counted. Placing as many takes some seconds.
COUNT_MAX: Final = 100_000
_REQUESTS, _LIMITS = "requests.", "limits."
# More MiB, or cards, nobody asks.
_MOST: Final = 2**26
_NAME: Final = "fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitType:
    """So many *pods* fit on cards of one type, on so many *nodes*; a pod on cards of several types names all."""

    type: str
    pods: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How many pods fit that ask in one way.

    protocol: by which they ask, "" if they ask for no card. limits, annotations: what a container, and its pod, write;
    empty of a manifest. is_all: False if counting stopped before the cluster was full. largest_memory_mib: the most
    memory that one pod could have on each of as many cards; largest_cards: the most cards that it could have with as
    much memory on each; None if that was not asked. code, stops: why one pod more does not fit. nearest, change: as in
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
    """The answer of ``fits``: one entry for each way to ask; the pods of two ways may want the same cards."""

    version: int = VERSION
    namespace: str
    ways: tuple[Fit, ...]
    notes: tuple[str, ...] = ()


class Place(NamedTuple):
    """Where pods are counted: on a copy of *ledger*, within what *quotas* of *namespace* leave its *pods* on nodes."""

    ledger: Ledger
    namespace: str
    quotas: Sequence[ResourceQuota] = ()
    pods: Sequence[Pod] = ()

    @property
    def policy(self) -> NodePolicy:
        """By which nodes are chosen, as far as settings say it."""
        return node_policy(self.ledger.settings)

    def budget(self) -> Budget | None:
        """What the quotas leave; None where nothing limits the namespace."""
        return budget(self._limited())

    def _limited(self) -> Iterator[Limited]:
        held: Counter[str] = Counter()
        for pod in self.pods:
            holding = self.ledger.holding(pod.uid)
            if holding is not None:
                held.update(taken(self.ledger, pod, holding.dialect, holding.assignment))
        for one in self.quotas:
            account = Account(QUOTA, one.name, one.namespace)
            if one.scoped:
                continue
            in_all = {key.removeprefix(_LIMITS): most for key, most in one.hard.items() if key.startswith(_LIMITS)}
            yield Limited(account, {key: most for key, most in in_all.items() if key in self.ledger.budgeted}, held)
            yield Limited(account, {key: most for key, most in one.hard.items() if key.startswith(_REQUESTS)}, one.used)


def fits_wish(where: Place, wish: CardWish, notes: Sequence[str] = ()) -> Fits:
    """How many pods fit of which one container asks *wish*, by every protocol that can say so and has cards."""
    ledger, ways = where.ledger, list[Fit]()
    for name, dialect in ledger.catalog.worded.items():
        offering = [state for state in ledger.states.values() if state.offers.get(name)]

        def asking(at: int, wish: CardWish, dialect: Worded = dialect) -> Wording | None:
            return next(islice(dialect.worded(wish, ledger.tables), at, None), None)

        for at, wording in enumerate(dialect.worded(wish, ledger.tables)):
            pod = _pod(where, wording)
            asked = ledger.catalog.request_of(pod, ledger.tables, ledger.settings)
            if isinstance(asked, Asked) and asked.dialect != name:
                continue  # by the same resource another protocol is meant, which has its own turn
            if any(not wording.limits.keys().isdisjoint(state.facts.allocatable) for state in offering):
                fit = _fit(where, pod, str(name))
                largest = _largest(where, wish, partial(asking, at))
                ways.append(replace(fit, limits=wording.limits, annotations=wording.annotations, **largest))
    return Fits(namespace=where.namespace, ways=tuple(ways), notes=tuple(notes))


def fits_pod(where: Place, pod: Pod, notes: Sequence[str] = ()) -> Fits:
    """How many pods like *pod* fit; its volume claims are not judged."""
    if pod.volumes != NO_VOLUMES:
        pod = pod._replace(volumes=NO_VOLUMES)
        notes = (*notes, "volume claims of the pod are not judged")
    found = where.ledger.catalog.request_of(pod, where.ledger.tables, where.ledger.settings)
    protocol = str(found.dialect) if isinstance(found, Asked) else ""
    return Fits(namespace=where.namespace, ways=(_fit(where, pod, protocol),), notes=tuple(notes))


def _pod(where: Place, wording: Wording) -> Pod:
    """A pod of one container that writes *wording*, as the API server would store it."""
    return Pod(
        uid=PodUid(_NAME),
        namespace=where.namespace,
        name=_NAME,
        scheduler_name=min(where.ledger.settings.scheduler_names),
        containers=(Container(name=_NAME, limits=wording.limits, requests=wording.limits),),
        annotations=wording.annotations,
    )


def _fit(where: Place, pod: Pod, protocol: str) -> Fit:
    shape = read_wish(pod, where.ledger)
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
    one_more = shape.beside(copy.topology.peers_of(pod))
    return _told(found, explain.wait(explain.refused(copy, one_more, where.policy.cards)))


def _over(found: Fit, over: tuple[Over, ...]) -> Fit:
    """*found*, where a quota stops the next pod: the controller holds to ``limits.``, the API server to the rest."""
    counted = next((one for one in over if one.resource.startswith(_REQUESTS)), None)
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
    """Where the pod goes, and one more like it, and so on; each is reserved in *copy* before the next is asked for."""
    if shape.peers is not None:
        # One pod's place may depend on the last one's, on another node too.
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
    """What *placement* takes of quotas: as HAMi counts it, and as Kubernetes does, under ``requests.``."""
    counted = {f"{_REQUESTS}{name}": amount for name, amount in nodefit.amounts_of(pod)}
    return {**taken(ledger, pod, placement.dialect, placement.assignment), **counted}


def _label(ledger: Ledger, placement: Placement) -> str:
    """The types of the cards of *placement*."""
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
    """The most memory, and the most cards, that one pod gets that is otherwise as *wish*; 0 if none does."""
    ledger, left = where.ledger, where.budget()

    def takes(wish: CardWish) -> bool:
        wording = asking(wish)
        if wording is None:
            return False
        pod = _pod(where, wording)
        shape = read_wish(pod, ledger)
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
    """The largest amount that is taken, where whatever is less than one that is taken is taken too; or 0."""
    limit = 1
    while limit < _MOST and is_taken(limit):
        limit *= 2
    return bisect_left(range(1, limit), True, key=lambda amount: not is_taken(amount))
