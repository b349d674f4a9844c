"""What a user is told of slices that are larger than what was asked for."""

from __future__ import annotations

from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.pods import larger_slices
from core.dialects.vgpu.table import VgpuTable
from core.sharing.request import Request
from tests.support.devices.cards import TABLES, container, pod

MIG = {"volcano.sh/vgpu-mode": "mig"}


def told(memory: int, **annotations: str) -> list[tuple[int, int, str]]:
    request = Vgpu().request(pod(container(number=1, memory=memory), annotations={**MIG, **annotations}), TABLES)
    assert isinstance(request, Request)
    return [(one.wanted_mib, one.slice_mib, one.profile) for one in larger_slices(request, TABLES.of(VgpuTable))]


def test_a_request_is_rounded_up_to_the_slice_of_the_first_layout_that_fits():
    assert told(3000) == [(3000, 5120, "1g.5gb")]
    assert told(5121) == [(5121, 10240, "2g.10gb")]
    assert told(20481) == [(20481, 40960, "7g.40gb")]


def test_an_exact_slice_and_one_that_no_layout_has_are_not_spoken_of():
    assert told(5120) == []
    assert told(40961) == []


def test_models_that_the_pod_does_not_accept_are_not_spoken_of():
    assert told(3000, **{"nvidia.com/use-gputype": "A30"}) == []


def test_other_modes_give_what_was_asked_for():
    asked = Vgpu().request(pod(container(number=1, memory=3000)), TABLES)
    assert isinstance(asked, Request)
    assert larger_slices(asked, TABLES.of(VgpuTable)) == ()
