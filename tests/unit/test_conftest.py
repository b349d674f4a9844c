"""The safety nets of conftest.py catch what they are there for."""

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from blockbuster import BlockingError

from certs.files import read
from tests.conftest import CASES, rank_of, scope_of

TESTS = Path(__file__).parents[1]


async def test_a_blocking_call_of_ours_inside_the_loop_fails(tmp_path):
    (tmp_path / "tls.crt").write_text("")
    with pytest.raises(BlockingError):
        read(tmp_path)


async def test_the_same_call_in_a_thread_is_fine(tmp_path):
    (tmp_path / "tls.crt").write_text("")
    assert (await asyncio.to_thread(read, tmp_path)).cert_pem == b""


@pytest.mark.may_block(reason="shows that the mark works")
async def test_the_mark_lifts_the_net(tmp_path):
    (tmp_path / "tls.crt").write_text("")
    assert read(tmp_path).cert_pem == b""


def test_asking_for_a_loop_outside_of_one_makes_none():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(RuntimeError):
            asyncio.get_event_loop()


@pytest.mark.parametrize(
    ("nodeid", "shared"),
    [
        ("tests/e2e/test_rights.py::test_a", "tests/e2e/test_rights.py"),
        ("tests/e2e/test_policies.py::test_a", "e2e"),
        ("tests/e2e/test_deploy.py::test_a", "e2e installed"),
        ("tests/e2e/test_tenants.py::test_a", "e2e installed"),
        ("tests/e2e/test_scenarios.py::test_examples__a[one]", "e2e installed"),
        ("tests/browser/test_web_page.py::test_a", "browser"),
        ("tests/node/test_chart.py::test_a", "tests/node/test_chart.py"),
        ("tests/unit/test_walls.py::test_a", "tests/unit/test_walls.py"),
        ("tests/unit/test_layout.py::test_a", "tests/unit/test_layout.py::test_a"),
    ],
)
def test_what_tests_share_is_made_in_one_process(nodeid, shared):
    assert scope_of(nodeid) == shared


def test_tests_that_may_take_a_minute_are_begun_before_those_that_take_none():
    files = ("unit/test_a", "e2e/test_a", "integration/test_a", "e2e/test_scenarios")
    found = sorted((f"tests/{file}.py::t" for file in files), key=rank_of)
    assert found == [f"tests/{file}.py::t" for file in ("e2e/test_scenarios", *files[1:3], files[0])]
    rooms = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert max(rank_of(f"tests/{room}/test_a.py::t") for room in rooms) == rank_of("tests/unit/test_a.py::t")


def test_a_case_is_found_by_its_number_wherever_it_is_played():
    found = {name for name, numbers in CASES.items() if 22 in numbers}
    played = "what_is_bound_while_the_watch_of_pods_is_held_back_counts_at_once"
    assert found == {f"integration/test_fail_points::{played}", f"e2e/test_scenarios::fail_points__{played}"}


def test_scenarios_are_played_on_two_servers():
    scopes = {scope_of(f"tests/e2e/test_scenarios.py::test_gangs__{at}") for at in range(20)}
    assert len(scopes) == 2


@pytest.mark.parametrize(
    ("file", "fixture"),
    [("e2e/test_realapi.py", "realapi"), ("node/test_chart.py", "cluster"), ("browser/test_web_page.py", "chromium")],
)
def test_what_tests_of_a_folder_share_ends_before_others_begin(file, fixture):
    asked = [sys.executable, "-m", "pytest", "-n", "0", "--setup-plan", f"tests/{file}", "tests/unit/test_walls.py"]
    found = subprocess.run(asked, check=False, cwd=TESTS.parent, capture_output=True, text=True, timeout=60).stdout
    made, ended = found.index(f"SETUP    P {fixture}"), found.index(f"TEARDOWN P {fixture}")
    assert made < ended < found.index("tests/unit/test_walls.py::")


def test_a_path_that_is_not_there_is_refused_where_tests_run_in_several_processes():
    asked = [sys.executable, "-m", "pytest", "-n", "2", "tests/unit/not_there"]
    found = subprocess.run(
        asked, check=False, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60
    )
    assert (found.returncode, found.stderr) == (4, "ERROR: file or directory not found: tests/unit/not_there\n\n")
