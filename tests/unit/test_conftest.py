"""The safety nets of conftest.py catch what they are there for."""

import asyncio
import warnings

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
