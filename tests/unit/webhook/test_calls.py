import pytest

from webhook.calls import deadline_s


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("timeout=10s", 8.0),
        ("timeout=500ms", 0.4),
        ("a=b&timeout=1.5s&c=d", 1.2),
        ("timeout=1m", 48.0),
        ("", 8.0),
        ("timeout=soon", 8.0),
        ("timeout=0s", 0.01),
        ("timeout=" + "9" * 400 + "s", 8.0),
    ],
)
def test_the_deadline_is_four_fifths_of_the_callers(query, seconds):
    assert deadline_s(query.encode()) == pytest.approx(seconds)
