"""What a register says that no grammar holds it to: modes, types and ids of any text and length."""

import pytest

from core.dialects.vgpu.cards import offer
from core.model import Node, NodeName
from core.names import VGPU_REGISTER
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import Tables
from core.sharing.card import HAMI_CORE, MODES, Card

HAVE = dict.fromkeys(("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"), "10")


def offered(register: str) -> Offer[Card]:
    found = offer(Node(name=NodeName("n"), annotations={VGPU_REGISTER: register}, allocatable=HAVE), Tables())
    assert isinstance(found, Offer)
    return found


@pytest.mark.parametrize("mode", ["exclusive", "MIG", "", "hami-core "])
def test_an_unknown_mode_is_taken_for_hami_core_as_plugin_and_scheduler_do_and_said(mode):
    (card,) = offered(f"GPU-a,10,1000,NVIDIA-T4,true,{mode}:").cards
    assert (card.fixed.kind.mode, card.fixed.fault) == (HAMI_CORE, None)
    assert card.fixed.problem == f"mode '{mode}' is unknown and taken for hami-core"


@pytest.mark.parametrize("mode", MODES[::2])
def test_a_known_mode_needs_no_word(mode):
    (card,) = offered(f"GPU-a,10,1000,NVIDIA-T4,true,{mode}:").cards
    assert (card.fixed.kind.mode, card.fixed.problem) == (mode, "")


def test_what_is_said_of_a_card_is_short_and_printable_whatever_its_register_says():
    odd = "\x1b[2J" + "x" * 10_000
    register = f"{odd},0,1,{odd},true,{odd}:u,1,1,{odd},true,{odd}:w,1,1,NVIDIA-{odd},true,{odd}:"
    found = offered(register)
    said = [*(f"{one.field}: {one.problem}" for one in found.complaints), *(c.fixed.problem for c in found.cards)]
    assert len(found.complaints) == 2
    assert all(text.isprintable() and len(text) < 300 for text in said)


def complained(register: str) -> Complaint:
    found = offer(Node(name=NodeName("n"), annotations={VGPU_REGISTER: register}, allocatable=HAVE), Tables())
    assert isinstance(found, Complaint)
    return found


def test_a_register_of_more_cards_than_a_machine_has_is_refused_and_told():
    fits = "".join(f"GPU-{at},10,1000,NVIDIA-T4,true,hami-core:" for at in range(256))
    assert len(offered(fits).cards) == 256
    for register, count in (
        (fits + "GPU-x,10,1000,NVIDIA-T4,true,hami-core:", 257),
        ("GPU-a,1,1,NVIDIA,true,:" * 45_000, 45_000),
    ):
        assert complained(register).problem.endswith(f"no more than 256 cards are read, here are {count}")


@pytest.mark.parametrize("uuid", ["GPU;a", "GPU[0-1]", ";", "GPU-\ud800", "\udfff"])
def test_a_card_whose_id_no_assignment_can_carry_takes_nothing(uuid):
    (card,) = offered(f"{uuid},10,1000,NVIDIA-T4,true,hami-core:").cards
    assert card.fixed.fault is Reason.UNUSABLE
    assert "cannot be written into an assignment" in card.fixed.problem
    assert card.fixed.problem.isprintable()
