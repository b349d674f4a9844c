"""Every case to survive is played by a test that there is, or has none for a reason."""

import ast
from functools import cache
from pathlib import Path

from tests.support.worlds.cases import PLAYED, TITLES, WITHOUT

TESTS = Path(__file__).parents[1]


@cache
def names_in(file):
    tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {one.name.removeprefix("test_") for one in ast.walk(tree) if isinstance(one, functions)}


def test_a_case_is_played_or_has_a_reason_and_not_both():
    assert sorted([*PLAYED, *WITHOUT]) == sorted(TITLES)
    assert all(PLAYED.values())
    assert all(WITHOUT.values())


def test_whatever_plays_a_case_is_there():
    missing = [
        (number, test)
        for number, tests in PLAYED.items()
        for test in tests
        if not (TESTS / f"{test.partition('::')[0]}.py").exists()
        or test.partition("::")[2] not in names_in(test.partition("::")[0])
    ]
    assert missing == []


def test_a_test_that_names_a_case_plays_it():
    # A name may begin with two numbers.
    for tests in PLAYED.values():
        for test in tests:
            for word in test.partition("::")[2].split("_")[:2]:
                if word.isdigit() and int(word) in TITLES:
                    assert test in PLAYED[int(word)]
