"""The tables of docs/protocol/hami-vendors.md, as the vendors declare them; ``scripts/manifests`` writes them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from core.dialects.hami_vendors.dialect import VENDORS
from core.dialects.hami_vendors.vendor import Capacity, Vendor

PAGE: Final = Path(__file__).parents[3] / "docs" / "protocol" / "hami-vendors.md"
_TABLE: Final = re.compile(r"(<!-- table of (\w+), by scripts/manifests -->\n\n)(?:\|.*\n)*")


def written(text: str) -> str:
    """The page *text* with its tables as they are by the declarations."""
    tables = {"types": _types(), "requests": _requests(), "cards": _cards(), "annotations": _annotations()}
    return _TABLE.sub(lambda found: found[1] + tables[found[2]], text)


def write() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(one)} |".replace("|  ", "| ") for one in (columns, *rows)]
    lines.insert(1, "|---" * len(columns) + "|")
    return "".join([f"{line}\n" for line in lines])


def _code(names: Iterable[str]) -> str:
    return ", ".join([f"`{one}`" for one in names if one])


def _types() -> str:
    columns = ("dialect", "section", "word", "count", "memory", "cores")

    def row(one: Vendor) -> Sequence[str]:
        memory = one.limits.memory and f"`{one.limits.memory}`, {_unit(one)}"
        cores = (
            one.limits.cores and f"`{one.limits.cores}`, {'%' if one.cards.by_share else one.cards.core_unit or '%'}"
        )
        if one.cards.slices:
            memory, cores = f"`{one.limits.memory}`, no effect", f"`{one.limits.cores}`, no effect"
        return (f"`{one.name}`", f"`{one.section.key}`", f"`{one.word}`", f"`{one.limits.count}`", memory, cores)

    return _table(columns, map(row, VENDORS))


def _unit(vendor: Vendor) -> str:
    if vendor.limits.memory_mib is not None:
        return "GiB, or MiB with a suffix"
    return "MiB" if vendor.limits.mib_per_unit == 1 else f"{vendor.limits.mib_per_unit} MiB"


def _requests() -> str:
    columns = ("dialect", "cards of a container", "memory", "absent cores", "containers with cards")

    def row(one: Vendor) -> Sequence[str]:
        cards = ", ".join(map(str, one.limits.counts)) if one.limits.counts else "any number"
        cards += "; several only whole" if one.limits.several_are_whole else ""
        cards = "one, of so many slices" if one.cards.slices else cards
        cards += ", or cores instead" if one.limits.asks is not None else ""
        cores = "all" if one.limits.all_cores else "none"
        if one.limits.companions:
            cores = "not allowed"
        elif one.limits.rounds_up:
            cores = "by the memory"
        containers = "one, no init container" if one.limits.one_container else "all"
        containers = "all, of one card; no init container" if one.cards.slices else containers
        is_counted = one.cards.whole is not None or one.cards.slices or one.limits.asks is not None
        return (f"`{one.name}`", cards, _memory(one), "" if is_counted else cores, containers)

    return _table(columns, map(row, VENDORS))


def _memory(one: Vendor) -> str:
    if one.cards.whole is not None or one.cards.slices or not one.limits.memory:
        return ""
    if not one.limits.steps:
        return "any, but not absent" if one.limits.companions else "any"
    steps = ", ".join(map(str, one.limits.steps))
    return f"rounded up to {steps}" if one.limits.rounds_up else f"{steps} of one card"


def _cards() -> str:
    columns = ("dialect", "cards from", "lock", "account of the plugin")

    def row(one: Vendor) -> Sequence[str]:
        source = one.cards.source
        if isinstance(source, Capacity):
            each = f"{source.cores} cores" if source.has_cores else "card"
            cards = f"capacity, one for each {each}, as `NODE-{source.word}-INDEX`"
        else:
            form = "own JSON" if source.read is not None else "JSON" if source.has_json else "text"
            cards = f"{form} in `{source.key}`"
        lock = "HAMi's" if one.handoff.locks else "none"

        def account(name: str) -> str:
            return f"`{name.removeprefix('system:serviceaccount:').replace(':', '/')}`"

        accounts = list(map(account, one.handoff.accounts))
        accounts += [f"{account(one.handoff.elsewhere)}, to be added"] if one.handoff.elsewhere else []
        return (
            f"`{one.name}`",
            cards,
            lock,
            ", ".join(accounts) or ("needs none" if one.handoff.kubelet_chooses else "not known"),
        )

    return _table(columns, map(row, VENDORS))


def _annotations() -> str:
    columns = ("dialect", "assignment", "besides", "annotations of pods")

    def row(one: Vendor) -> Sequence[str]:
        lists = (*one.limits.select, *one.limits.select_too, *one.limits.types, *one.wishes.keys)
        return (
            f"`{one.name}`",
            _code((one.handoff.allocated, one.handoff.to_allocate)),
            _code(one.handoff.extra_keys),
            _code(lists),
        )

    return _table(columns, map(row, VENDORS))
