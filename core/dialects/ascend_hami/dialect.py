"""The HAMi protocol for Ascend behind the port."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from core import hami_lock
from core.dialects.ascend_hami import cards, keys, pods
from core.dialects.ascend_hami.rules import AscendRules
from core.dialects.ascend_hami.table import SECTION
from core.model import Pod
from core.port.cards import Tally
from core.port.dialect import Names
from core.port.spec import DialectSpec
from core.settings import DialectName, Tables
from core.sharing.card import Card
from core.sharing.dialect import ByNodeLock, NodeLock, SharedCards
from core.sharing.request import Request, Resources

# What people see of how a chip is shared.
_NOTES: Final = {keys.SOFT_MODE: "soft slicing", keys.TEMPLATE_MODE: ""}


class AscendHami(ByNodeLock, SharedCards):
    """`Dialect` of core.port for Ascend chips handed over by the HAMi device plugin."""

    name: DialectName = cards.NAME
    rules = AscendRules()
    # Ids of chips are unique only on their node.
    has_ids = False

    offer = staticmethod(cards.offer)
    request = staticmethod(pods.request)
    relaxed = staticmethod(pods.relaxed)
    held = staticmethod(pods.held)
    annotations = staticmethod(pods.annotations)
    in_flight = staticmethod(pods.in_flight)
    recognised = staticmethod(pods.recognised)
    completed = staticmethod(pods.completed)
    advice = staticmethod(pods.advice)
    warnings = staticmethod(pods.warnings)

    def declared(self, tables: Tables) -> tuple[Resources, ...]:
        return tuple([chip.named for chip in cards.chips_of(tables)])

    def names(self, tables: Tables) -> Names:
        chips = cards.chips_of(tables)
        words = [chip.named.type for chip in chips]
        return replace(
            super().names(tables),
            assignment_keys=keys.COMMON_KEYS.union(
                *((keys.to_allocate(w), keys.allocated(w), keys.runtime_info(w)) for w in words),
            ),
            # Chips without a configuration are held, too.
            beginnings=(keys.PREFIX + keys.ASCEND,),
            preferences=frozenset({keys.MODE}).union(*map(keys.lists, words)),
            paired=frozenset([chip.named.cards for chip in chips if chip.paired]),
            budgeted=tuple([chip.named.memory for chip in chips]),
            runtime_classes=frozenset([one.runtime_class for one in chips if one.runtime_class]),
        )

    def tally(self, cards: Sequence[Card]) -> tuple[Tally, ...]:
        return tuple([one._replace(note=_NOTES.get(one.note, one.note)) for one in super().tally(cards)])


def _guesses(pod: Pod, tables: Tables) -> bool:
    """Return whether several containers have chips: the plugin drops the lock after each (D-1)."""
    asked = pods.request(pod, tables)
    return isinstance(asked, Request) and len(asked.asks) > 1


DIALECT: Final = DialectSpec(
    port=AscendHami(),
    cards="ascend",
    key_prefixes=("huawei.com/", "hami.io/"),
    switch="AscendHAMiVNPUEnable",
    plugin_accounts=("system:serviceaccount:kube-system:hami-ascend",),
    ignored=hami_lock.IGNORED,
    node_lock=NodeLock(_guesses),
    sections=(SECTION,),
)
