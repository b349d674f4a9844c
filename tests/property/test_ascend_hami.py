"""Any register of Ascend chips in HAMi mode is read, or refused."""

from hypothesis import given
from hypothesis import strategies as st

from core.dialects.ascend_hami.register import decode_register
from core.errors import InvalidRequestError

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
