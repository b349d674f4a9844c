"""``scripts/manifests``: writes the lists of keys, resources and accounts in deploy/base anew, and what follows.

Manifests say in CEL which pods concern cards. Each list there, one entry to a line, follows from the dialects. Which
one it is, is told by what it holds: the one with which it has the most in common.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from core import hami_lock
from core.admission.rulebook import MOVED, Rulebook, rulebook
from core.catalog import standard_catalog
from core.configuration import OWN_MAP, SCHEDULER_MAP, device_maps
from core.dialects.hami_vendors.dialect import VENDORS
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.hami_vendors.vendor import Register
from core.settings import CONTROLLER_ACCOUNT, Settings, Tables
from tests.support.devices.vendors import mistakes, unlisted
from tests.support.pages import chart, vendors_page

BASE: Final = Path(__file__).parents[3] / "deploy" / "base"
# Keys and resources with these affixes are told by them in CEL: there is one for every model of a chip.
_CHIP: Final = "huawei.com/Ascend"
_HAMI: Final = "hami.io/"
_OF_A_CHIP: Final = ("-devices-to-allocate", "-devices-allocated", "-uuid")
# Left alone unless an annotation speaks of them.
_PLAIN_GPU: Final = "nvidia.com/gpu"
# Where HAMi's configuration has all of its other vendors.
HAMIS_TABLES: Final = Tables(sections=tuple([VendorNames(dialect=vendor.name) for vendor in VENDORS]))
_LIST: Final = re.compile(r"^( *)(.*)\[\n((?: *'[^'\n]*',?\n)+)( *)\]", re.MULTILINE)
# A list that no dialect tells, and one that HAMi's other vendors tell a part of, by the variable that holds each.
_BY_HAND: Final = re.compile(r"- name: phaseAccounts\n *expression: \|\n$")
_OF_NODES: Final = re.compile(r"- name: pluginNodeKeys\n *expression: \|\n$")


def lists_of(book: Rulebook) -> Mapping[str, frozenset[str]]:
    """Every list by what it holds."""

    def told(keys: frozenset[str]) -> frozenset[str]:
        return frozenset(key for key in keys if not (key.startswith(_CHIP) or _by_pattern(key)))

    protected, preferences = book.protected, frozenset({*book.preferences, *vendor_preferences(), *MOVED})
    resources = frozenset(name for name in book.resources if not name.startswith(_CHIP))
    vendors = vendor_resources(book)
    plugins = frozenset(name for name in book.plugins if not name.endswith("*"))
    return {
        "resources that are reviewed": resources - {_PLAIN_GPU},
        "resources": resources,
        "resources that are reviewed where HAMi is installed": vendors | {_PLAIN_GPU},
        "beginnings of resources that are reviewed where HAMi is installed": prefixes_of(vendors),
        "beginnings of annotations that people mistype": strange_prefixes(),
        "annotations that are reviewed": told(protected | preferences),
        "protected annotations, but those of chips": told(protected),
        "protected annotations": protected,
        "annotations that are frozen": preferences - protected,
        "plugins": plugins,
        "plugins, also by their beginning": frozenset(book.plugins),
        "trusted accounts": plugins | {CONTROLLER_ACCOUNT},
        "the controller": frozenset({CONTROLLER_ACCOUNT}),
        "locks of nodes": _locks(),
        "ConfigMaps of the configuration": frozenset({OWN_MAP, SCHEDULER_MAP, *device_maps(Settings()).values()}),
    }


def vendor_resources(book: Rulebook) -> frozenset[str]:
    """The resources of HAMi's other vendors, which *book* does not know."""
    return standard_catalog().words(HAMIS_TABLES).resources - book.resources


def vendor_preferences() -> frozenset[str]:
    """The annotations by which pods choose cards, with those of HAMi's other vendors."""
    return rulebook(Settings(), HAMIS_TABLES, standard_catalog()).preferences


def prefixes_of(names: Iterable[str]) -> frozenset[str]:
    """The domains of *names*, with the slash."""
    return frozenset(f"{name.partition('/')[0]}/" for name in names)


def strange_prefixes() -> frozenset[str]:
    """The beginnings of keys that are compared with known ones, of all vendors."""
    return frozenset(rulebook(Settings(), HAMIS_TABLES, standard_catalog()).key_prefixes)


def _by_pattern(key: str) -> bool:
    return key.startswith(_HAMI) and key.endswith(_OF_A_CHIP)


def written(text: str, book: Rulebook) -> str:
    """The manifest *text* with its lists as they are by *book*."""
    lists = lists_of(book).values()

    def one(found: re.Match[str]) -> str:
        if _BY_HAND.search(found.string, 0, found.start()):
            return found[0]
        if _OF_NODES.search(found.string, 0, found.start()):
            return _listed(found, _keys_of_nodes(re.findall(r"'([^']*)'", found[3])))
        held = frozenset(re.findall(r"'([^']*)'", found[3]))
        # New dialects make lists longer, so that what a list already holds tells more than what it lacks.
        known = max(lists, key=lambda each: (len(each & held), -len(each)))
        if 2 * len(known & held) < len(held):
            raise ValueError(f"a list of {min(held)!r} and others is none that follows from the dialects")
        return _listed(found, sorted(known))

    return _LIST.sub(one, text)


def _listed(found: re.Match[str], entries: Iterable[str]) -> str:
    """The list *found* with *entries*."""
    indent = re.match(" *", found[3])
    assert indent is not None
    lines = ",\n".join(f"{indent[0]}'{entry}'" for entry in entries)
    return f"{found[1]}{found[2]}[\n{lines}\n{found[4]}]"


def _keys_of_nodes(entries: Sequence[str]) -> list[str]:
    """*entries*, ``account=key``, with all that plugins of HAMi's other vendors write on their nodes."""
    told: set[str] = set()
    for one in VENDORS:
        register = one.cards.source.key if isinstance(one.cards.source, Register) else ""
        keys = (register, hami_lock.LOCK if one.handoff.locks else "", one.handoff.time_lock, *one.handoff.node_keys)
        told |= {f"{account}={key}" for account in one.handoff.accounts for key in keys if key}
    accounts = {entry.partition("=")[0] for entry in told}
    return [*[one for one in entries if one.partition("=")[0] not in accounts], *sorted(told)]


def _locks() -> frozenset[str]:
    """The annotations of nodes by which schedulers and device plugins take turns."""
    specs = standard_catalog().specs
    return frozenset(
        {one.node_lock.lock_key for one in specs if one.node_lock} | {one.time_lock for one in specs} - {""}
    )


def main() -> int:
    """Write them, unless a vendor is not told from others."""
    wrong = [*unlisted(), *mistakes(VENDORS)]
    if wrong:
        sys.stderr.write("".join(f"{one}\n" for one in wrong))
        return 1
    book = rulebook(Settings(), Tables(), standard_catalog())
    for path in sorted(BASE.glob("*.yaml")):
        before = path.read_text(encoding="utf-8")
        after = written(before, book)
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(BASE.parents[1])} was written anew\n")
    chart.write()
    vendors_page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
