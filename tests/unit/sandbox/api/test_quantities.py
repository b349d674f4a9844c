"""Quantities come back as a real API server was seen to write them."""

import pytest

from sandbox.api.quantities import QuantityError, canonical, value_of

MEASURED = {
    "1e3": "1e3",
    "+1": "+1",
    "1E": "1E",
    "1024": "1024",
    "9223372036854775808": "9223372036854775808",
    "1e308": "100e306",
    "1.10": "1100m",
    "0.5Gi": "512Mi",
    "1024.000Mi": "1Gi",
    "1000k": "1M",
    "1n": "1m",
    " 1": "1",
    "-0": "0",
    "-1": "-1",
    "500m": "500m",
    "1.5": "1500m",
    "1Ki": "1Ki",
    "1000": "1k",
    "+1000": "1k",
    "5.": "5.",
    "1E3": "1E3",
    "12e6": "12e6",
    "1500Mi": "1500Mi",
    "2000000": "2M",
}


@pytest.mark.parametrize(("text", "written"), MEASURED.items(), ids=[repr(t) for t in MEASURED])
def test_a_quantity_is_rewritten_as_measured(text, written):
    assert canonical(text) == written


def test_a_number_is_a_quantity():
    assert canonical(2) == "2"


@pytest.mark.parametrize("text", ["", "1x", "1 Gi", "Gi", "1e", "--1", "0x10", None, True, [1], "1e99999", "\uff11"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(QuantityError):
        value_of(text)
