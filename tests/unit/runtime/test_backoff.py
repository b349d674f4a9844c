from runtime.backoff import Backoff


def test_waits_double_up_to_the_cap_and_begin_again():
    backoff = Backoff(first_s=1.0, cap_s=8.0, jitter=lambda: 0.0)
    assert [backoff.next_s() for _ in range(6)] == [1, 2, 4, 8, 8, 8]
    backoff.reset()
    assert backoff.next_s() == 1


def test_chance_shortens_a_wait_by_a_quarter_at_most():
    backoff = Backoff(first_s=1.0, cap_s=8.0, jitter=lambda: 1.0)
    assert [backoff.next_s() for _ in range(4)] == [0.75, 1.5, 3, 6]


def test_ten_thousand_failures_do_not_overflow():
    backoff = Backoff(first_s=1.0, cap_s=8.0, jitter=lambda: 0.0)
    assert {backoff.next_s() for _ in range(10_000)} == {1, 2, 4, 8}
