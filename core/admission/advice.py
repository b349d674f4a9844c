"""What is said of a pod that is admitted as it is."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from core.admission.rulebook import Rulebook
from core.admission.verdict import Notice
from core.catalog import Asked
from core.dialects.ascend_hami.cards import trim
from core.dialects.ascend_hami.requests import is_soft
from core.dialects.vgpu import advice
from core.model import Pod
from core.settings import DialectName

# More card models than these are not told apart: the first ones show what is meant.
_MODELS_MAX: Final = 3


def told(pod: Pod, asked: Asked, rules: Rulebook) -> Iterator[Notice]:
    """All that is said of *pod*, which asks *asked*."""
    yield from slices(asked, rules)
    yield from templates(pod, asked, rules)


def templates(pod: Pod, asked: Asked, rules: Rulebook) -> Iterator[Notice]:
    """CS114: an Ascend chip is cut by templates, so that a container gets the next larger one (ascend 4.3).

    The figure is left as it was written: scheduler and device plugin read both alike, and a second apply is no change.
    """
    if asked.dialect is not DialectName.ASCEND_HAMI or is_soft(pod):
        return
    for chip in rules.tables.ascend.chips:
        for one in (*pod.init_containers, *pod.containers):
            text = one.limits.get(chip.memory_resource, "")
            wanted_mib = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
            cut = trim(chip, wanted_mib) if wanted_mib else None
            if cut is not None and cut.memory_mib > wanted_mib:
                given = f"{cut.memory_mib} MiB ({cut.template or 'the whole chip'})"
                yield Notice("CS114", f'container "{one.name}": {chip.memory_resource} {text} gets {given}')


def slices(asked: Asked, rules: Rulebook) -> Iterator[Notice]:
    """CS113: in mode mig a card gives whole slices, which may be larger than what was asked for."""
    if asked.dialect is not DialectName.VGPU:
        return
    for wanted_mib, grants in groupby(
        advice.larger_slices(asked.request, rules.tables.vgpu), lambda one: one.wanted_mib
    ):
        told = [f"{one.slice_mib} MiB ({one.profile}) on {one.model}" for one in grants]
        text = ", or ".join(told[:_MODELS_MAX])
        yield Notice("CS113", f"{wanted_mib} MiB may get a slice of {text}: mode mig gives whole slices only")
