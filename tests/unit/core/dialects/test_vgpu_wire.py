"""The texts of the vGPU protocol: register, assignments, slice ids."""

import pytest

from core.dialects.vgpu.cards import layout_of
from core.dialects.vgpu.pods import decode_pod_devices, decode_slice_id, devices_left
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvalidRequestError
from core.sharing.account import Entry, Unread, Written
from core.sharing.slices import Slice, choose, profile_at
from core.wire.vgpu_register import decode_register
from tests.support.devices.cards import A100, A100_LAYOUTS, record


def test_a_position_counts_empty_pieces_too():
    records = decode_register(":" + record("GPU-a") + ":" + record("GPU-b"))
    assert [(one.uuid, one.position) for one in records] == [("GPU-a", 1), ("GPU-b", 3)]


@pytest.mark.parametrize(
    ("count", "memory", "problem"),
    [
        ("-1", "5", "its count is no whole number from 1 to 2147483647"),
        ("10", "-5", "its memory is no whole number from 1 to 2147483647"),
        ("10", "2147483648", "its memory is above 2147483647"),
        ("10", "99999999999999999999", "its memory is no whole number from 1 to 2147483647"),
        ("0", "5", "its count is 0"),
        ("10", "", "its memory is no whole number from 1 to 2147483647"),
        ("1_0", "5", "its count is no whole number from 1 to 2147483647"),
    ],
)
def test_a_figure_out_of_range_is_told_of_the_card(count, memory, problem):
    (found,) = decode_register(f"GPU-a,{count},{memory},NVIDIA-T4,true,hami-core:")
    assert found.problem == problem


def test_five_fields_are_of_an_old_plugin_and_say_nothing_of_health():
    (found,) = decode_register("GPU-a,10,5,NVIDIA-T4,false:")
    assert (found.healthy, found.mode, found.problem) == (None, "hami-core", "")


@pytest.mark.parametrize(
    "text", ["", "GPU-a,10,5,NVIDIA-T4,true,hami-core", "a,b:", "GPU-a,10,NVIDIA-T4,true,mig:", "x" * (1 << 20) + ":"]
)
def test_a_register_that_is_none_is_a_typed_error(text):
    with pytest.raises(InvalidRequestError) as caught:
        decode_register(text)
    assert "node-vgpu-register" in caught.value.field


def test_what_cannot_be_read_is_kept_as_unreadable():
    (segment,) = decode_pod_devices("GPU-a,NVIDIA,1:GPU-b,NVIDIA,1,1:")
    assert segment == (Unread("GPU-a", "GPU-a,NVIDIA,1"), Written("GPU-b", "NVIDIA", 1, 1))


def test_devices_left_are_counted_as_the_plugin_counts_them():
    assert devices_left("") == 0
    assert devices_left(";GPU-a,NVIDIA,1,1:;x,:") == 2


def test_slice_ids_go_round():
    assert decode_slice_id(Entry(0, "GPU-a", 0, 1, 1, 1, Slice("group2", 3)).name) == Slice("group2", 3)


@pytest.mark.parametrize(
    "text", ["GPU-a", "GPU-a[]", "GPU-a[g]", "GPU-a[g-]", "GPU-a[g-1-2]", "GPU-a]g-1[", "GPU-a[g-x]"]
)
def test_a_text_that_is_no_slice_id_is_none(text):
    assert decode_slice_id(text) is None


def test_positions_follow_the_declared_order_of_profiles():
    layout = layout_of(A100, VgpuTable(geometries=(A100_LAYOUTS,)))
    found = [profile_at(layout, Slice("group2", at)) for at in range(5)]
    assert [one.charge if one else None for one in found] == [10240, 10240, 10240, 5120, None]
    assert profile_at(layout, Slice("group9", 0)) is None
    assert profile_at(layout, Slice("group1", -1)) is None


def test_a_slice_is_charged_in_the_registers_unit():
    layout = layout_of(A100, VgpuTable(named=VgpuTable().named._replace(mib_per_unit=2), geometries=(A100_LAYOUTS,)))
    profile = profile_at(layout, Slice("group2", 0))
    assert profile is not None
    assert profile.charge == 5120


def test_an_empty_card_takes_the_first_layout_that_fits_and_a_used_one_keeps_its_own():
    layout = layout_of(A100, VgpuTable(geometries=(A100_LAYOUTS,)))
    first, second, last = (Slice("group2", at) for at in (0, 1, 3))
    found = [choose(layout, used, size) for used, size in (((), 8000), ((first,), 4000), ((first, last), 4000))]
    assert [one.slice if one else None for one in found] == [first, last, second]
    assert choose(layout, (Slice("group1", 0),), 8000) is None
