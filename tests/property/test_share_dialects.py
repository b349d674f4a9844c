"""What the NVIDIA share dialects write is read back as it was, and no text of others takes long."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.pods import decode_pod_devices
from core.errors import InvalidRequestError
from core.sharing.account import Written, encode_segments
from core.wire.vgpu_register import decode_register
from tests.support.devices.cards import TABLES, bound

card_ids = st.text(st.characters(exclude_characters=",:;", exclude_categories=["Cs"]), max_size=20)
entries = st.builds(Written, card_ids, card_ids, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


@given(st.lists(st.lists(entries, max_size=3), min_size=1, max_size=4))
def test_assignments_go_round(segments):
    text = encode_segments(segments).removesuffix(";")
    assume(text)
    assert decode_pod_devices(text) == tuple(map(tuple, segments))


@pytest.mark.parametrize("size", [16 * 1024 + 1, 10_000_000])
def test_a_text_beyond_the_bound_is_refused_unread(size):
    text = "GPU-0,NVIDIA,1,1:" * (size // 17 + 1)
    with pytest.raises(InvalidRequestError):
        decode_pod_devices(text)
    if size > 1 << 20:
        with pytest.raises(InvalidRequestError):
            decode_register(text)
    held = Vgpu().held(bound(text), (), TABLES)
    assert held is not None
    assert held.closes
