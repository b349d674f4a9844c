"""How connections of one port come to several processes; here both ends are in one."""

import asyncio
import socket

import pytest

from webhook.sharing import Door, Inlet, Outlet


class Worker:
    """A worker's end, and the connections that came over it."""

    def __init__(self, door, *, ready=True):
        self.inlet = Inlet()
        self.outlet = Outlet(self.inlet.theirs.detach())
        self.taken = []
        door.add(self.inlet)
        if ready:
            self.outlet.say_ready()

    def take(self):
        self.taken += self.outlet.take()
        return len(self.taken)

    def close(self):
        self.outlet.close()
        for one in self.taken:
            one.close()


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.setblocking(False)
        yield found


@pytest.fixture
async def door(listening):
    found = Door(listening)
    yield found
    found.close()


@pytest.fixture
async def workers(door):
    found = []

    def start(**what):
        found.append(Worker(door, **what))
        return found[-1]

    yield start
    for one in found:
        one.close()
        door.remove(one.inlet)


@pytest.fixture
def call(listening):
    found: list[socket.socket] = []

    async def connect(times=1):
        found.extend(socket.create_connection(listening.getsockname(), timeout=5) for _ in range(times))
        await settled()

    yield connect
    for one in found:
        one.close()


async def settled():
    """Let the loop see what the sockets have: the kernel is done with loopback when a call returns."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_connection_goes_to_the_worker_that_has_fewest(workers, call):
    one, other = workers(), workers()
    await settled()
    await call(6)
    assert (one.take(), other.take()) == (3, 3)
    other.inlet.tell(0, given=3)
    await call(4)
    assert (one.take(), other.take()) == (4, 6)


async def test_what_a_worker_tells_leaves_out_what_is_on_its_way(workers, call):
    one, other = workers(), workers()
    await settled()
    await call(2)
    one.inlet.tell(5, given=0)
    assert (one.inlet.load, other.inlet.load) == (6, 1)


async def test_a_handed_over_connection_is_the_callers(workers, call, listening):
    worker = workers()
    await settled()
    with socket.create_connection(listening.getsockname(), timeout=5) as caller:
        await settled()
        worker.take()
        worker.taken[0].sendall(b"here")
        assert caller.recv(4) == b"here"


async def test_connections_wait_until_a_worker_is_ready(workers, call):
    worker = workers(ready=False)
    await call(2)
    assert worker.take() == 0
    worker.outlet.say_ready()
    await settled()
    assert worker.take() == 2


async def test_a_worker_that_is_gone_gets_nothing(workers, call):
    gone, other = workers(), workers()
    await settled()
    gone.close()
    await call(3)
    assert other.take() == 3


async def test_a_keeper_that_is_gone_sends_nothing(workers):
    worker = workers()
    worker.inlet.close()
    with pytest.raises(EOFError):
        worker.outlet.take()
