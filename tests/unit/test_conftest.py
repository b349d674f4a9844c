"""The safety nets of conftest.py catch what they are there for."""

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from blockbuster import BlockingError

from certs.files import read


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


def test_a_path_that_is_not_there_is_refused_where_tests_run_in_several_processes():
    asked = [sys.executable, "-m", "pytest", "-n", "2", "tests/unit/not_there"]
    found = subprocess.run(
        asked, check=False, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60
    )
    assert (found.returncode, found.stderr) == (4, "ERROR: file or directory not found: tests/unit/not_there\n\n")
