"""The inputs of the rules besides the pod, computed once for each configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core import names
from core.catalog import Catalog
from core.inventory import Stock
from core.model import Container, ReviewedPod
from core.port.spec import CardLists, Modes
from core.settings import CONTROLLER_ACCOUNT, DialectName, Settings, Tables, is_named

# There is one such key per chip model (ascend 1.6), including future models.
_MACHINE_PREFIXES: Final = ("huawei.com/Ascend",)
_MACHINE_SUFFIXES: Final = ("-devices-to-allocate", "-devices-allocated")
_HAMI_PREFIX: Final = "hami.io/"

# Keys in the guides whose values move to a user's key.
MOVED: Final = {names.GPU_INDEX: names.WISHED_INDICES, names.GPU_UNHEALTHY: names.AVOIDED_CARDS}

# Annotations in which users list cards, for any dialect.
_LISTING: Final = frozenset({names.AVOIDED_CARDS, names.WISHED_INDICES})
_REFUSING: Final = frozenset({names.AVOIDED_CARDS})
# Those with types of NVIDIA's cards, which several dialects read.
_TYPES: Final = CardLists(names.USE_GPU_TYPE, names.NO_USE_GPU_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """Settings, tables and dialects, and what follows from them.

    budgeted: resources that ``limits.`` of a ResourceQuota limits. counts: by resource for an amount of a card, the
    resource that counts cards. fills: by such a resource, the default count if it is not 1; 0 for none. paired:
    resources whose cards are allocated only in pairs. memories: by the resource that counts cards, the one for the
    memory of each, in MiB. totals, repeats: as in `core.port.dialect.Names`. units, quantities: as in
    `core.catalog.Words`. resources: all of these, of all dialects; resources_by_dialect: the same, of each.
    preferences: annotations by which users select cards: free while the pod waits, frozen once it is bound.
    labels: by dialect, the labels that are read only from its pods; runtime_classes: those that dialects set.
    modes: how pods select a sharing mode, by dialect. variables: those by which plugins limit containers, each with the
    resources of its dialects. card_lists, type_lists: annotations with lists of card ids and of types, of all dialects;
    listing_cards: those of ids and the list of avoided cards. listing: these and the lists of types and positions;
    refusing: the lists of unwanted cards. key_prefixes: prefixes of the keys and resources of dialects.
    ignored: by label and value, the dialects whose defaulting they turn off. whole: resources by which others sell
    whole cards and a dialect sells shares.
    trusted: accounts that may write assignments; plugins: those of them that are device plugins.
    stock: what the cluster's nodes offer, None if unknown.
    """

    settings: Settings
    tables: Tables
    catalog: Catalog
    resources: frozenset[str]
    resources_by_dialect: Mapping[DialectName, frozenset[str]]
    protected: frozenset[str]
    repeats: Mapping[str, str]
    preferences: frozenset[str]
    labels: Mapping[DialectName, frozenset[str]]
    runtime_classes: frozenset[str]
    budgeted: frozenset[str]
    counts: Mapping[str, str]
    fills: Mapping[str, int]
    paired: frozenset[str]
    memories: Mapping[str, str]
    totals: frozenset[str]
    units: Mapping[str, int]
    quantities: Mapping[str, int]
    modes: Mapping[DialectName, Modes]
    variables: Mapping[str, frozenset[str]]
    card_lists: tuple[CardLists, ...]
    type_lists: tuple[CardLists, ...]
    listing_cards: frozenset[str]
    listing: frozenset[str]
    refusing: frozenset[str]
    key_prefixes: tuple[str, ...]
    ignored: Mapping[tuple[str, str], frozenset[DialectName]]
    whole: frozenset[str]
    trusted: tuple[str, ...]
    plugins: tuple[str, ...]
    stock: Stock | None = None

    def with_stock(self, stock: Stock | None) -> "Rulebook":
        """Return the same rules for a cluster that offers *stock*."""
        return replace(self, stock=stock)

    def is_protected(self, key: str) -> bool:
        """Return whether only schedulers and device plugins write this annotation."""
        if key in self.protected or key.startswith(_MACHINE_PREFIXES):
            return True
        return key.startswith(_HAMI_PREFIX) and key.endswith(_MACHINE_SUFFIXES)

    def protected_of(self, keys: Iterable[str]) -> list[str]:
        """Return the protected *keys*, in order; a pod may have ten thousand annotations."""
        protected = self.protected
        found = [
            key
            for key in keys
            if key in protected
            or key.startswith(_MACHINE_PREFIXES)
            or (key.endswith(_MACHINE_SUFFIXES) and key.startswith(_HAMI_PREFIX))
        ]
        return sorted(found)

    def to_move(self, annotations: Mapping[str, str]) -> list[str]:
        """Return the keys of `MOVED` in *annotations* under which a user selects cards.

        A position beside other marks of machines is an assignment: the manifest was copied from a bound pod, as by
        `kubectl debug --copy-to` or a backup.
        """
        found = [key for key in MOVED if key in annotations]
        return [key for key in found if not self.is_protected(key)] if found and self.is_copied(annotations) else found

    def is_copied(self, keys: Iterable[str]) -> bool:
        """Return whether a manifest with annotations *keys* was copied from a bound pod."""
        return any(key not in MOVED for key in self.protected_of(keys))

    def is_concerned_with(self, pod: ReviewedPod) -> bool:
        """Return whether any rule may affect *pod* or read one of its annotations."""
        return self.asks_cards(pod) or self.reads_of(pod.annotations)

    def reads_of(self, annotations: Mapping[str, str]) -> bool:
        """Return whether any rule reads one of *annotations*."""
        if not (self.preferences.isdisjoint(annotations) and MOVED.keys().isdisjoint(annotations)):
            return True
        return bool(self.protected_of(annotations))

    def asks_cards(self, pod: ReviewedPod) -> bool:
        """Return whether a container of *pod* names a card resource."""
        return any(map(self.has_cards, pod.containers)) or any(map(self.has_cards, pod.init_containers))

    def has_cards(self, container: Container) -> bool:
        """Return whether *container* names a card resource."""
        resources = self.resources
        return not (resources.isdisjoint(container.limits) and resources.isdisjoint(container.requests))

    def is_ignored(self, pod: ReviewedPod) -> bool:
        """Return whether *pod*, which requests cards, opts out of defaulting."""
        for (key, value), dialects in self.ignored.items():
            if pod.labels.get(key) == value and not dialects.isdisjoint(self.catalog.dialects_of(pod, self.tables)):
                return True
        return False

    def needs_shares(self, pod: ReviewedPod) -> bool:
        """Return whether *pod* needs a scheduler for shares: it names a resource that is not for whole cards."""
        shares = self.resources - self.whole
        return any(
            not shares.isdisjoint((*one.limits, *one.requests)) for one in (*pod.containers, *pod.init_containers)
        )

    def is_left_to_others(self, pod: ReviewedPod) -> bool:
        """Return whether *pod* names another scheduler that is known to assign cards."""
        name = pod.scheduler_name
        return name in self.settings.admission.known_schedulers and name not in self.settings.scheduler_names

    def trusts(self, user_name: str) -> bool:
        """Return whether *user_name* may write what only schedulers and device plugins write."""
        return is_named(user_name, self.trusted)

    def is_of_a_node(self, user_name: str) -> bool:
        """Return whether *user_name* is a device plugin, which may write only pods of its own node."""
        return is_named(user_name, self.plugins)

    def may_assign(self, user_name: str, pod: ReviewedPod) -> bool:
        """Return whether *user_name* may write assignments on *pod*: plugins, cardshare, the pod's own scheduler."""
        admission, scheduler = self.settings.admission, pod.scheduler_name
        if self.trusts(user_name):
            return True
        return scheduler not in self.settings.scheduler_names and admission.is_account_of(scheduler, user_name)

    def may_bind(self, user_name: str) -> bool:
        """Return whether a Binding by *user_name* may have an assignment; it does not show the pod's scheduler."""
        admission, owned = self.settings.admission, self.settings.scheduler_names
        others = [account for name, account in admission.other_schedulers.items() if name not in owned]
        return self.trusts(user_name) or user_name in others

    def is_plugin(self, user_name: str) -> bool:
        """Return whether *user_name* is trusted with assignments but does not create them."""
        return user_name != CONTROLLER_ACCOUNT and self.trusts(user_name)

    def own_scheduler(self) -> str:
        """Return the scheduler name that pods with shares get."""
        owned = self.settings.scheduler_names
        return names.SCHEDULER_NAME if names.SCHEDULER_NAME in owned else owned[0]


def rulebook(settings: Settings, tables: Tables, catalog: Catalog) -> Rulebook:
    """Return the rulebook of a configuration."""
    named = {name: catalog.names(name, tables) for name in catalog.dialects}
    trusted, plugins = settings.admission.trusted_accounts, settings.admission.plugin_accounts
    # Dialects of one maker have the same ones.
    card_lists = tuple(dict.fromkeys([pair for one in catalog.specs for pair in one.card_lists]))
    type_lists = (_TYPES, *(pair for one in catalog.specs for pair in one.type_lists))
    by_dialect = {name: one.resources for name, one in named.items()}
    return Rulebook(
        settings=settings,
        tables=tables,
        catalog=catalog,
        resources=catalog.words(tables).resources,
        resources_by_dialect=by_dialect,
        protected=catalog.assignment_keys(tables).union(
            names.PRIVATE_KEYS, *(one.machine_keys for one in catalog.specs)
        ),
        repeats={key: resource for one in named.values() for key, resource in one.repeats.items()},
        preferences=frozenset().union(*(one.preferences for one in named.values())),
        labels={one.name: one.labels for one in catalog.specs if one.labels},
        runtime_classes=frozenset().union(*(one.runtime_classes for one in named.values())),
        budgeted=frozenset(key for one in named.values() for key in one.budgeted),
        fills={key: number for one in named.values() for key, number in one.fills.items()},
        counts={key: count for one in named.values() for key, count in one.counts.items()},
        paired=frozenset().union(*(one.paired for one in named.values())),
        trusted=(*((CONTROLLER_ACCOUNT, *catalog.plugin_accounts) if trusted is None else trusted), *plugins),
        plugins=tuple(dict.fromkeys((*catalog.plugin_accounts, *plugins))),
        memories={count: memory for one in named.values() for count, memory in one.memories.items()},
        totals=frozenset().union(*(one.totals for one in named.values())),
        units=catalog.words(tables).units,
        quantities=catalog.words(tables).quantities,
        modes={one.name: one.modes for one in catalog.specs if one.modes is not None},
        variables=_variables(catalog, by_dialect),
        card_lists=card_lists,
        type_lists=type_lists,
        listing_cards=frozenset((names.AVOIDED_CARDS,)).union(*card_lists),
        listing=_LISTING.union(*card_lists, *type_lists),
        refusing=_REFUSING.union(one.avoid for one in (*card_lists, *type_lists)),
        ignored={
            said: frozenset(one.name for one in catalog.specs if one.ignored == said)
            for said in {one.ignored for one in catalog.specs if one.ignored[0]}
        },
        whole=frozenset().union(*(by_dialect[name] & by_dialect[other] for name, other in catalog.stands_in.items())),
        key_prefixes=tuple(
            sorted({names.OWN_PREFIX}.union(*(one.key_prefixes for one in catalog.specs if by_dialect[one.name])))
        ),
    )


def _variables(catalog: Catalog, by_dialect: Mapping[DialectName, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for one in catalog.specs:
        for name in one.variables:
            found[name] = found.get(name, frozenset()) | by_dialect[one.name]
    return found
