"""Nothing that is tested on the embedded cluster is silently left out on a real API server."""

import inspect

from tests.conftest import SCENARIOS, scope_of
from tests.support.worlds.scenarios import (
    OF_RIGHTS,
    ON_BOTH,
    ONLY_HERE,
    defined_in,
    is_scenario,
    modules,
    reason,
    replayed,
)

TESTS = [
    (module.__name__.rpartition(".")[2], name, test)
    for module in modules()
    for name, test in defined_in(module).items()
]


def test_every_test_of_the_room_is_played_on_a_real_server_or_listed_with_a_reason():
    left_out = [
        f"{module}::{name}" for module, name, test in TESTS if not is_scenario(test) and not reason(module, name)
    ]
    assert left_out == [], "have the cluster opened by a fixture, or say why not in tests/support/worlds/scenarios.py"


def test_what_is_listed_is_there_and_only_once():
    known = {module for module, _, _ in TESTS} | {f"{module}::{name}" for module, name, _ in TESTS}
    assert [name for name in (*ONLY_HERE, *OF_RIGHTS, *ON_BOTH) if name not in known] == []
    assert [name for name in ONLY_HERE if name.partition("::")[0] in ONLY_HERE and "::" in name] == []


def test_all_others_are_replayed_under_names_of_their_own():
    expected = [test for module, name, test in TESTS if is_scenario(test) and not reason(module, name)]
    assert expected
    assert list(replayed().values()) == expected


def test_no_module_with_scenarios_has_marks_or_fixtures_that_a_replay_would_lack():
    for module in modules():
        name = module.__name__
        if any(is_scenario(test) and not reason(name, it) for it, test in defined_in(module).items()):
            assert not hasattr(module, "pytestmark"), name


def test_scenarios_on_the_product_as_installed_are_apart_from_those_that_start_it():
    for name, test in replayed().items():
        shares = "shared_stage" in inspect.signature(test).parameters
        assert (scope_of(f"{SCENARIOS}::{name}") == "e2e installed") == shares, name
