"""Laws of everything that reads text from outside: any bytes are accepted, or refused as the codec promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, read

GRAMMAR = [b",", b":", b";", b"[", b"]", b"{", b"}", b'"', b"-", b"_", b" ", b"\n", b"0", b"null", b"GPU-0", b"NaN"]
HOSTILE = [b"1e9", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\xd9\xa3", b"9" * 400, b"[" * 400]
PIECES = st.sampled_from([*GRAMMAR, *HOSTILE])


def mutated(seeds):
    """A seed with pieces of it cut out, doubled, or replaced by what breaks grammars."""
    cut = st.tuples(st.sampled_from(seeds), st.integers(0, 400), st.integers(0, 40), st.lists(PIECES, max_size=4))
    return cut.map(lambda found: found[0][: found[1]] + b"".join(found[3]) + found[0][found[1] + found[2] :])


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_accepted_or_refused_as_promised(name):
    target = TARGETS[name]

    @settings(max_examples=120, deadline=None)
    @given(st.one_of(mutated(target.seeds), st.binary(max_size=200), st.text(max_size=80).map(str.encode)))
    def holds(data):
        read(target, data)

    holds()


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_is_accepted(name):
    assert any(read(TARGETS[name], seed) for seed in TARGETS[name].seeds)
