"""What calls that fail leave behind while nothing else is collected, as before the first sync."""

import contextlib
import gc

import pytest

from controller.garbage import Garbage
from kube.credentials import Credentials, Tls
from kube.errors import ApiUnreachableError
from kube.transport import Transport
from sandbox.demo.processes import free_port
from tests.support.servers.fixed_source import FixedSource


@pytest.fixture
def uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_an_api_server_that_is_away_costs_no_memory_however_often_it_is_asked(uncollected):
    failed = 0
    garbage = Garbage(lambda: 0, is_enabled=gc.isenabled, failures=lambda: failed)
    source = FixedSource(credentials=Credentials(server=f"https://127.0.0.1:{free_port()}", tls=Tls()))
    sizes = []
    async with Transport(source) as transport:
        for _ in range(640):
            # pytest.raises would remember each of them.
            with contextlib.suppress(ApiUnreachableError):
                await transport.request("GET", "/api/v1/pods")
            failed += 1
            garbage.look()
            if failed % 128 == 0:
                sizes.append(len(gc.get_objects()))
    assert max(sizes) - sizes[0] < 200, sizes
