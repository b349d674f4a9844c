import asyncio

from controller.__main__ import exit_code
from core.errors import ConfigError, InvariantError


async def _tasks(error):
    async def fails():
        raise error

    async with asyncio.TaskGroup() as outer:
        outer.create_task(fails())


def test_a_clean_end_is_0():
    assert exit_code(lambda: None) == 0


def test_a_configuration_that_cannot_be_used_is_2_with_every_problem(capsys):
    def run():
        raise ConfigError(["a: wrong", "b: wrong"])

    assert exit_code(run) == 2
    assert capsys.readouterr().err == "controller: a: wrong\ncontroller: b: wrong\n"


def test_a_broken_promise_in_any_task_is_3_in_one_line(capsys):
    assert exit_code(lambda: asyncio.run(_tasks(InvariantError("card x twice")))) == 3
    said = capsys.readouterr().err
    assert (said.count("\n"), "card x twice" in said) == (1, True)
