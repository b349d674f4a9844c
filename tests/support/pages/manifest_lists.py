"""``scripts/manifests``: writes the lists of keys, resources and accounts in deploy/base anew, and the chart after it.

Manifests say in CEL which pods concern cards. Each list there, one entry to a line, follows from the dialects. Which
one it is, is told by what it holds: the one with which it has the most in common.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from core.admission.rulebook import MOVED, Rulebook, rulebook
from core.catalog import standard_catalog
from core.configuration import OWN_MAP, SCHEDULER_MAP, device_maps
from core.dialects.hami_vendors.dialect import VENDORS
from core.dialects.hami_vendors.table import VendorNames
from core.settings import CONTROLLER_ACCOUNT, Settings
from core.tables import Tables
from tests.support.pages import chart

BASE: Final = Path(__file__).parents[3] / "deploy" / "base"
# Keys and resources with these affixes are told by them in CEL: there is one for every model of a chip.
_CHIP: Final = "huawei.com/Ascend"
_OF_A_CHIP: Final = ("-devices-to-allocate", "-devices-allocated", "-uuid")
# Left alone unless an annotation speaks of them.
_PLAIN_GPU: Final = "nvidia.com/gpu"
# Where HAMi's configuration has all of its other vendors.
HAMIS_TABLES: Final = Tables(sections=tuple([VendorNames(dialect=vendor.name) for vendor in VENDORS]))
_LIST: Final = re.compile(r"^( *)(.*)\[\n((?: *'[^'\n]*',?\n)+)( *)\]", re.MULTILINE)
# Lists that no dialect tells, by the variable that holds each.
_BY_HAND: Final = re.compile(r"- name: (phaseAccounts|pluginNodeKeys)\n *expression: \|\n$")


def lists_of(book: Rulebook) -> Mapping[str, frozenset[str]]:
    """Every list by what it holds."""

    def told(keys: frozenset[str]) -> frozenset[str]:
        return frozenset(key for key in keys if not key.startswith(_CHIP) and not key.endswith(_OF_A_CHIP))

    protected, preferences = book.protected, frozenset({*book.preferences, *MOVED})
    resources = frozenset(name for name in book.resources if not name.startswith(_CHIP))
    vendors = standard_catalog().resources(HAMIS_TABLES) - book.resources
    plugins = frozenset(name for name in book.plugins if not name.endswith("*"))
    return {
        "resources that are reviewed": resources - {_PLAIN_GPU},
        "resources": resources,
        "resources that are reviewed where HAMi is installed": vendors | {_PLAIN_GPU},
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


def written(text: str, book: Rulebook) -> str:
    """The manifest *text* with its lists as they are by *book*."""
    lists = lists_of(book).values()

    def one(found: re.Match[str]) -> str:
        if _BY_HAND.search(found.string, 0, found.start()):
            return found[0]
        held = frozenset(re.findall(r"'([^']*)'", found[3]))
        # New dialects make lists longer, so that what a list already holds tells more than what it lacks.
        known = max(lists, key=lambda each: (len(each & held), -len(each)))
        if 2 * len(known & held) < len(held):
            raise ValueError(f"a list of {min(held)!r} and others is none that follows from the dialects")
        indent = re.match(" *", found[3])
        assert indent is not None
        entries = ",\n".join(f"{indent[0]}'{key}'" for key in sorted(known))
        return f"{found[1]}{found[2]}[\n{entries}\n{found[4]}]"

    return _LIST.sub(one, text)


def _locks() -> frozenset[str]:
    """The annotations of nodes by which schedulers and device plugins take turns."""
    specs = standard_catalog().specs
    return frozenset(
        {one.node_lock.lock_key for one in specs if one.node_lock} | {one.time_lock for one in specs} - {""}
    )


def main() -> int:
    """Write them."""
    book = rulebook(Settings(), Tables(), standard_catalog())
    for path in sorted(BASE.glob("*.yaml")):
        before = path.read_text(encoding="utf-8")
        after = written(before, book)
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(BASE.parents[1])} was written anew\n")
    chart.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
