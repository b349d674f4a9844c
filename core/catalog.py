"""All dialects by name: which dialect a pod uses, what a node offers, and which keys are protected.

Only this module knows which dialects exist; add a new one to `_ALL`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from core.cardless import Cardless
from core.dialects.ascend_hami.dialect import DIALECT as ASCEND_HAMI
from core.dialects.gpushare.dialect import GPU_MEMORY, GPU_NUMBER
from core.dialects.hami.dialect import DIALECT as HAMI
from core.dialects.hami_vendors.dialect import DIALECTS as HAMI_VENDORS
from core.dialects.mindcluster.dialect import DIALECT as MINDCLUSTER
from core.dialects.vgpu.dialect import DIALECT as VGPU
from core.dialects.whole_gpu.dialect import DIALECT as WHOLE_GPU
from core.errors import InvalidRequestError, quoted
from core.inventory import node_of
from core.model import AnyPod, Node, Pod, ReviewedPod
from core.names import MAX_CARD_CONTAINERS
from core.port.cards import Offer
from core.port.dialect import AnyDialect, AnyJudging, Names
from core.port.refusals import Complaint, Violation
from core.port.spec import AnySpec, NodeDocuments
from core.settings import DialectName, Section, Settings, Tables
from core.sharing.request import Figures, containers_of
from core.units import MAX_AMOUNT, is_in_bytes, parse_count, unit_already
from core.wire.checked import Checks
from core.wire.vocabulary import DeviceSection, Vocabulary

# In the order in which they are asked.
_ALL: Final[tuple[AnySpec, ...]] = (
    VGPU,
    GPU_MEMORY,
    GPU_NUMBER,
    MINDCLUSTER,
    WHOLE_GPU,
    ASCEND_HAMI,
    HAMI,
    *HAMI_VENDORS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A pod's request in its dialect's own terms."""

    dialect: DialectName
    request: Any


class Words(NamedTuple):
    """The names of all dialects under *tables*, and the resources by which containers request cards.

    sellers: by resource, the dialects that sell by it, in the order in which they are asked. known: resources under
    these or the default tables. lost: the usual resources of dialects whose section cannot be used. uncounted: those
    of shares, which are never compared with a node's allocatable. budgeted: those that a namespace's quota can limit in
    HAMi's spelling. units: the MiB of a unit, by resource for memory; quantities: of those that containers may write as
    bytes.
    concerned: by annotation or resource, the dialects that a pod with it concerns; begun: by how it begins;
    beginnings: all of these.
    """

    tables: Tables
    names: Mapping[DialectName, Names]
    sellers: dict[str, tuple[DialectName, ...]]
    resources: frozenset[str]
    known: frozenset[str]
    lost: Mapping[str, DialectName]
    uncounted: frozenset[str]
    budgeted: frozenset[str]
    units: Mapping[str, int]
    quantities: Mapping[str, int]
    concerned: Mapping[str, tuple[DialectName, ...]]
    begun: Mapping[str, tuple[DialectName, ...]]
    beginnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    """The dialects in the order in which they are asked; specs: the complete descriptions."""

    specs: tuple[AnySpec, ...]
    dialects: Mapping[DialectName, AnyDialect] = field(init=False, compare=False)
    cardless: Cardless = field(init=False, compare=False)
    rivals: Mapping[DialectName, frozenset[DialectName]] = field(init=False, compare=False)
    stands_in: Mapping[DialectName, DialectName] = field(init=False, compare=False)
    _words: list[Words] = field(init=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dialects", {one.name: one.port for one in self.specs})
        object.__setattr__(self, "cardless", Cardless(self.dialects))
        # If several dialects sell the same cards of a node, the one in use closes the others until the node is empty.
        rivals = {
            one.name: frozenset(other.name for other in self.specs if other.cards == one.cards and other != one)
            for one in self.specs
        }
        object.__setattr__(self, "rivals", rivals)
        # By dialect that replaces another on its nodes; elsewhere, the other sells by the same resource.
        stands_in = {one.name: one.instead_of for one in self.specs if one.instead_of is not None}
        object.__setattr__(self, "stands_in", stands_in)

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that configuration texts may use."""
        return Vocabulary(
            dialects=tuple(self.dialects),
            switches={one.switch: one.name for one in self.specs if one.switch},
            old_switches=tuple(one.switch for one in self.specs if one.old_switch),
            modes=tuple(dict.fromkeys(word for one in self.specs if one.modes for word in one.modes.words)),
            sections=tuple(section for one in self.specs for section in one.sections),
            arguments=tuple(section for one in self.specs for section in one.arguments),
        )

    @property
    def documents(self) -> tuple[NodeDocuments, ...]:
        """The documents about nodes in ConfigMaps, each once."""
        return tuple(one.documents for one in self.specs if one.documents is not None)

    @property
    def plugin_accounts(self) -> tuple[str, ...]:
        """The user names of all device plugins, each once; a trailing ``*`` marks a prefix."""
        return tuple(dict.fromkeys(name for one in self.specs for name in one.plugin_accounts))

    def judging(self, name: DialectName | None) -> AnyJudging:
        """Return the judge of dialect *name*; None: the judge for pods without cards."""
        return self.cardless if name is None else self.dialects[name]

    def words(self, tables: Tables) -> Words:
        """Return the names under *tables*; kept until these change, because they are needed for each pod."""
        if not self._words or self._words[0].tables is not tables:
            if self._words and self._words[0].tables == tables:
                self._words[0] = self._words[0]._replace(tables=tables)
                return self._words[0]
            names = {name: dialect.names(tables) for name, dialect in self.dialects.items()}
            sellers = _by_word((name, one.resources) for name, one in names.items())
            concerned = _by_word((name, one.resources | one.assignment_keys) for name, one in names.items())
            begun = _by_word((name, one.beginnings) for name, one in names.items())
            for start, more in begun.items():
                concerned |= {word: (*some, *more) for word, some in concerned.items() if word.startswith(start)}
            resources = frozenset(sellers)
            usual = _union(dialect.names(Tables()).resources for dialect in self.dialects.values())
            lost = {
                resource: spec.name
                for spec in self.specs
                for one in spec.sections
                if one.alone in tables.lost
                for resource in _usual_names(spec, one)
            }
            uncounted = _union(one.uncounted for one in names.values())
            budgeted = frozenset(name for one in names.values() for name in one.budgeted)
            in_bytes = {name: mib for one in names.values() for name, mib in one.quantities.items()}
            units = {name: mib for one in names.values() for name, mib in one.units.items()} | in_bytes
            known = resources | usual | frozenset(lost)
            self._words[:] = [
                Words(
                    tables=tables,
                    names=names,
                    sellers=sellers,
                    resources=resources,
                    known=known,
                    lost=lost,
                    uncounted=uncounted,
                    budgeted=budgeted,
                    units=units,
                    quantities=in_bytes,
                    concerned=concerned,
                    begun=begun,
                    beginnings=tuple(begun),
                )
            ]
        return self._words[0]

    def names(self, name: DialectName, tables: Tables) -> Names:
        """Return the names of dialect *name*."""
        return self.words(tables).names[name]

    def dialects_of(self, pod: AnyPod, tables: Tables) -> Sequence[DialectName]:
        """Return the dialects with a resource that *pod* names; no other dialect has a request of it."""
        sellers = self.words(tables).sellers
        found: tuple[DialectName, ...] = ()
        for one in (*pod.containers, *pod.init_containers):
            for amounts in (one.limits, one.requests):
                for resource in amounts:
                    selling = sellers.get(resource)
                    if selling is not None and selling is not found and selling != found:
                        both = (*found, *selling)
                        found = tuple([name for name in self.dialects if name in both]) if found else selling
        return found

    def concerned(self, pod: Pod, tables: Tables) -> list[DialectName]:
        """Return the dialects that *pod* concerns by its annotations and resources.

        In all others it holds nothing once it is bound, and their plugins never serve it.
        """
        words = self.words(tables)
        concerned, beginnings = words.concerned, words.beginnings
        # Users write any number of annotations.
        known = concerned.keys() & pod.annotations.keys()
        begun = [word for word in pod.annotations if word.startswith(beginnings)]
        for amounts in _amounts_of(pod):
            for word in amounts:
                if word in concerned:
                    known.add(word)
                elif word.startswith(beginnings):
                    begun.append(word)
        found: set[DialectName] = set()
        for word in known:
            for name in concerned[word]:
                found.add(name)
        if begun:
            for start, names in words.begun.items():
                if any(word.startswith(start) for word in begun):
                    found.update(names)
        return [name for name in self.dialects if name in found] if len(found) > 1 else list(found)

    def assignment_keys(self, tables: Tables) -> frozenset[str]:
        """Return pod annotations that only schedulers and device plugins write."""
        return _union(self.names(name, tables).assignment_keys for name in self.dialects)

    def marks(self) -> frozenset[str]:
        """Return pod annotations of device plugins that do not describe what a pod holds."""
        return _union(one.marks for one in self.specs)

    def request_of(self, pod: AnyPod, tables: Tables, settings: Settings) -> Asked | tuple[Violation, ...] | None:
        """Return the card request of *pod*; None if there is none; violations if it is invalid.

        A pod uses one dialect; a disabled dialect rejects its pods by name.
        """
        found: list[tuple[DialectName, Any]] = []
        if is_crowded(pod):
            return self._crowded(pod, tables)
        for name in self.dialects_of(pod, tables):
            request = self.dialects[name].request(pod, tables)
            if request is not None:
                found.append((name, request))
        if not found:
            return None
        if len(found) > 1:
            found = self._one_of_a_name(found, pod, tables, settings)
        if len(found) > 1:
            return (_mixed([self._named(name, pod, tables) for name, _ in found]),)
        name, request = found[0]
        in_bytes = _in_bytes(pod, self.names(name, tables).units)
        if isinstance(request, tuple) and request and isinstance(request[0], Violation):
            fields = [one.field for one in in_bytes]
            return (*in_bytes, *[one for one in request if one.field not in fields])
        if in_bytes:
            return in_bytes
        if not settings.has_on(name):
            return (_switched_off(name, self._named(name, pod, tables), settings.why_off(name)),)
        return Asked(dialect=name, request=request)

    def _one_of_a_name(
        self, found: list[tuple[DialectName, Any]], pod: AnyPod, tables: Tables, settings: Settings
    ) -> list[tuple[DialectName, Any]]:
        """Return *found*; if two dialects sell by one resource, keep only the one that the pod means.

        That is the replacing dialect if it is enabled, or if the pod requests a resource that only it sells.
        """
        names = {name for name, _ in found}
        for name, other in self.stands_in.items():
            if name in names and other in names:
                own = self.names(name, tables).resources - self.names(other, tables).resources
                is_meant = settings.has_on(name) or any(
                    not own.isdisjoint((*one.limits, *one.requests)) for one in (*pod.containers, *pod.init_containers)
                )
                left = other if is_meant else name
                found = [one for one in found if one[0] != left]
        return found

    def _crowded(self, pod: AnyPod, tables: Tables) -> tuple[Violation, ...] | None:
        """CS220: *pod* has too many containers to be judged, and at least one of them requests cards."""
        whole = pod.as_pod() if isinstance(pod, ReviewedPod) else pod
        for name, dialect in self.dialects.items():
            named = self.names(name, tables).resources
            asking = (
                one
                for one in (*pod.containers, *pod.init_containers)
                if not named.isdisjoint((*one.limits, *one.requests))
            )
            first = next(asking, None)
            alone = whole._replace(containers=(first,), init_containers=()) if first is not None else None
            if alone is not None and dialect.request(alone, tables) is not None:
                return (_too_many_containers(len(pod.containers) + len(pod.init_containers)),)
        return None

    def _named(self, name: DialectName, pod: AnyPod, tables: Tables) -> str:
        """Return a resource by which *pod* requests cards of dialect *name*."""
        known = self.names(name, tables).resources
        amounts = (one for c in (*pod.containers, *pod.init_containers) for one in (c.limits, c.requests))
        return min((key for one in amounts for key in one if key in known), default=name)

    def gives_cards(self, name: DialectName, pod: Pod, tables: Tables) -> bool:
        """Return whether kubelet gives a container of *pod* a card of dialect *name*; a count of 0 gives none (S21).

        The pod may be bound by any scheduler, so an unreadable figure may stand for any number.
        """
        known = self.names(name, tables)
        return any(
            not _is_zero(one.amount(known.counts.get(key, key)))
            for one in (*pod.containers, *pod.init_containers)
            for key in known.resources.intersection((*one.limits, *one.requests))
        )

    def offers(
        self, node: Node, tables: Tables, settings: Settings
    ) -> tuple[dict[DialectName, tuple[Any, ...]], tuple[Complaint, ...]]:
        """Return (cards by dialect, complaints) of *node*: the protocols that it offers without selling cards twice."""
        offers: dict[DialectName, tuple[Any, ...]] = {}
        complaints: list[Complaint] = []
        # Dialects that sell shares by a resource by which another dialect would sell whole cards.
        served: list[tuple[DialectName, DialectName]] = []
        for name, dialect in self.dialects.items():
            is_on = settings.has_on(name)
            other = self.stands_in.get(name)
            if not is_on and other is None:
                continue
            found = dialect.offer(node, tables)
            if is_on:
                match found:
                    case Offer(cards=cards, complaints=some):
                        if cards or other is None:
                            offers[name] = cards
                        complaints.extend(some)
                    case Complaint() as complaint:
                        complaints.append(complaint)
                    case None:
                        pass
            # If its register is unreadable, the allocatable amount may be shares too.
            if other is not None and (isinstance(found, Complaint) or (found is not None and found.cards)):
                served.append((name, other))
        for name, other in served:
            if offers.pop(other, None) and not settings.has_on(name):
                complaints.append(_sold_in_shares(name, other, node))
        return offers, tuple(complaints)

    def clashes(self, sections: Collection[Section]) -> Mapping[DeviceSection, str]:
        """Return the unusable sections of device-config.yaml, with problems: their resources also mean other cards.

        If one of two sections uses its default name, the other one is unusable; otherwise both are.
        """
        if not sections:
            return {}
        now = Tables(sections=tuple(sections))
        names = {one.name: one.port.names(now).resources for one in self.specs}
        found: dict[DeviceSection, str] = {}
        for spec in self.specs:
            for one in spec.sections if names[spec.name] else ():
                if not one.alone:
                    continue
                usual = _usual_names(spec, one)
                for resource in sorted(names[spec.name]):
                    others = [
                        other.name
                        for other in self.specs
                        if other != spec
                        and resource in names[other.name]
                        and (resource not in usual or not any(each.alone for each in other.sections))
                    ]
                    if others:
                        remedy = f"write another name, because pods request cards of {' and '.join(others)} by this one"
                        found[one] = f"{one.key}: found {quoted(resource)}; {remedy}"
        return found

    def problems_of_kinds(self, tables: Tables, settings: Settings) -> tuple[str, ...]:
        """Return why the kinds of nodes in *settings* cannot be read as nodes with cards."""
        found: list[str] = []
        for kind in settings.node_kinds:
            offers, complaints = self.offers(node_of(kind), tables, settings)
            place = f"node_kinds.{kind.name}"
            found += [f"{place}: {one.field}: {one.problem}" for one in complaints]
            if not offers and not complaints:
                found.append(f"{place}: it has no cards; copy labels, annotations and capacity of a node that has")
        return tuple(found)


def _sold_in_shares(name: DialectName, other: DialectName, node: Node) -> Complaint:
    problem = f"its cards are sold in shares by {name}, which is switched off, and none of them whole; switch {name} on"
    return Complaint(dialect=other, field=f"node {node.name}", problem=problem)


def _amounts_of(pod: Pod) -> list[Mapping[str, str]]:
    """Return the limits and the requests of each container of *pod*; those that are one object once."""
    return [
        amounts
        for one in (*pod.containers, *pod.init_containers)
        for amounts in ((one.limits,) if one.requests is one.limits else (one.limits, one.requests))
    ]


def _usual_names(spec: AnySpec, section: DeviceSection) -> frozenset[str]:
    """Return the resources of a dialect whose *section* has no names of its own."""
    return spec.port.names(Tables(sections=(section.read(Checks(), None),))).resources


def _by_word(words: Iterable[tuple[DialectName, Iterable[str]]]) -> dict[str, tuple[DialectName, ...]]:
    found: dict[str, tuple[DialectName, ...]] = {}
    for name, some in words:
        for word in some:
            found[word] = (*found.get(word, ()), name)
    return found


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def is_crowded(pod: AnyPod) -> bool:
    """Return whether *pod* has more containers than a pod with cards may have."""
    return len(pod.containers) + len(pod.init_containers) > MAX_CARD_CONTAINERS


def _too_many_containers(count: int) -> Violation:
    return Violation(
        code="CS220",
        field="containers",
        found=str(count),
        remedy=f"a pod with cards has no more than {MAX_CARD_CONTAINERS}, init containers included; use more pods",
    )


def _is_zero(text: str | None) -> bool:
    try:
        return text is not None and parse_count(text, "", MAX_AMOUNT) == 0
    except InvalidRequestError:
        return False


def _in_bytes(pod: AnyPod, units: Mapping[str, int]) -> tuple[Violation, ...]:
    """Return CS101 for memory of cards in bytes; *units*: the MiB of a unit, by resource.

    Every scheduler reads 1Gi as 1073741824 units, which no card has.
    """
    wrong: list[Violation] = []
    for role, one in containers_of(pod):
        for resource, mib in units.items():
            text = one.amount(resource)
            if text is not None and is_in_bytes(text):
                Figures(one, role, wrong).wrong("CS101", resource, unit_already(text, mib))
    return tuple(wrong)


def _mixed(resources: Sequence[str]) -> Violation:
    return Violation(
        code="CS201",
        field="resources",
        found=" and ".join(resources),
        remedy="one pod uses one way of sharing; ask for the others in pods of their own",
    )


def _switched_off(name: DialectName, resource: str, why: str) -> Violation:
    return Violation(
        code="CS202",
        field="resources",
        found=resource,
        remedy=f"this way of sharing ({name}) is switched off{f': {why}' if why else ''}; ask the cluster's operator",
    )


def standard_catalog() -> Catalog:
    """Return every dialect of this project."""
    return Catalog(_ALL)
