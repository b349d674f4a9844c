import pytest

from kube.calls import is_newer


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        ("2", "1", True),
        ("10", "9", True),
        ("100000000000000000000000000000000000001", "99999999999999999999999999999999999999", True),
        ("9", "10", False),
        ("7", "7", False),
        ("1", "0", True),
        ("", "1", False),
        ("2", "", False),
        ("02", "1", False),
        ("2a", "1", False),
        ("\u0662", "1", False),
        ("-1", "-2", False),
    ],
)
def test_a_version_is_newer_if_both_are_numbers_that_say_so(version, than, newer):
    assert is_newer(version, than) is newer
