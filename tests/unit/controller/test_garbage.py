from controller.garbage import Garbage


def test_garbage_is_collected_after_some_dozen_changes_and_never_for_none():
    total = 0
    collected: list[int] = []

    def changes():
        return total

    garbage = Garbage(changes, collected.append)
    for _ in range(10):
        garbage.look()
    assert collected == []
    for _ in range(10):
        total += 60
        garbage.look()
        garbage.look()
    assert collected == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


def test_what_failed_calls_leave_is_collected_although_nothing_else_is_to_be():
    failed = 0
    collected: list[int] = []
    garbage = Garbage(lambda: 0, collected.append, lambda: False, lambda: failed)
    for _ in range(256):
        failed += 1
        garbage.look()
    assert collected == [*[0] * 7, 2] * 2


def test_nothing_is_collected_while_nothing_is_to_be():
    total = 0
    collected: list[int] = []
    garbage = Garbage(lambda: total, collected.append, lambda: False)
    for _ in range(10):
        total += 60
        garbage.look()
    assert collected == []
