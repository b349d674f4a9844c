"""Everything that is read of Ascend chips in HAMi mode is read, or refused."""

from hypothesis import given
from hypothesis import strategies as st

from core.dialects.ascend_hami.devices import Assigned, decode_devices, encode_devices
from core.dialects.ascend_hami.register import decode_register
from core.errors import InvalidRequestError

plain = st.text(st.characters(exclude_characters=",:;", exclude_categories=["Cs"]), max_size=12).filter(str.strip)
entries = st.builds(Assigned, plain, plain, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))


@given(st.lists(st.lists(entries, max_size=3).map(tuple), max_size=5).map(tuple))
def test_assignments_survive_the_wire(segments):
    assert decode_devices(encode_devices(segments), "f") == segments


@given(st.one_of(st.text(max_size=60), st.text(alphabet="U0,:;-19 ", max_size=60)))
def test_any_assignment_is_read_or_kept_as_unreadable(text):
    decode_devices(text, "f")


json_text = st.recursive(
    st.sampled_from(("null", "true", "1", "-1", "1e999", '"x"', "{}", "[]", "7.5", "NaN")),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda some: "[" + ",".join(some) + "]")
        | st.lists(
            st.tuples(st.sampled_from(("id", "ID", "count", "custominfo", "health", "NetworkID")), inner), max_size=3
        ).map(lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}")
    ),
    max_leaves=12,
)


@given(st.one_of(json_text, st.text(max_size=40)))
def test_any_register_is_read_or_refused(text):
    try:
        found = decode_register(text, "f")
    except InvalidRequestError:
        return
    assert all(record.position >= 0 for record in found)
