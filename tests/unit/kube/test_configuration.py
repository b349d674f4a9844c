"""The texts of the configuration are followed to where the settings say, also while they are first read."""

import asyncio
import json
from contextlib import asynccontextmanager

from core.catalog import standard_catalog
from core.configuration import SCHEDULER_MAP
from kube.calls import namespace_path
from kube.configuration import Follower
from kube.errors import ApiForbiddenError
from kube.transport import Response
from runtime.configuration import ActiveConfiguration
from runtime.files import Files

PAGE = json.dumps({"metadata": {"resourceVersion": "10"}, "items": []}).encode()
ELSEWHERE = "hami_config_namespace: elsewhere\n"


class Server:
    """Has no ConfigMaps. Those of *forbidden* namespaces may not be read; lists of *held* ones wait."""

    def __init__(self, *, forbidden=(), held=()):
        self.forbidden = set(forbidden)
        self.held = {namespace: asyncio.Event() for namespace in held}

    async def request(self, verb, path, *, params, deadline_s, purpose):
        namespace = path.removeprefix(namespace_path("x")[:-1]).partition("/")[0]
        if namespace in self.held:
            await self.held[namespace].wait()
        if namespace in self.forbidden:
            raise ApiForbiddenError(verb=verb, path=path, status=403, message="no")
        return Response(status=200, headers={}, body=PAGE)

    @asynccontextmanager
    async def stream(self, path, params, *, silence_s):
        yield self._silence()

    async def _silence(self):
        await asyncio.Event().wait()
        yield b""


@asynccontextmanager
async def following(server, file, trusted=("kube-system", "volcano-system")):
    files = Files(settings=file)
    active = await asyncio.to_thread(ActiveConfiguration, files, standard_catalog())

    async def changed():
        pass

    follower = Follower(active, files, trusted=frozenset(trusted), changed=changed)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one) for one in (follower.follow_files(), follower.follow_config_maps(server))]
        yield follower
        for one in running:
            one.cancel()


async def until(holds):
    while not holds():  # noqa: ASYNC110 (a state has no event)
        await asyncio.sleep(0.01)


async def test_settings_that_name_a_config_map_nobody_may_read_can_be_mended_at_the_start(tmp_path):
    file = tmp_path / "cardshare.yaml"
    await asyncio.to_thread(file.write_text, ELSEWHERE)
    async with following(Server(forbidden=["elsewhere"]), file) as follower:
        await until(lambda: any(one.startswith("forbidden: list configmaps") for one in follower.reasons()))
        assert not follower.listed.is_set()
        await asyncio.to_thread(file.write_text, "")
        await follower.listed.wait()
        assert follower.reasons() == []


async def test_a_config_map_that_settings_name_anew_at_the_start_is_waited_for(tmp_path):
    file = tmp_path / "cardshare.yaml"
    await asyncio.to_thread(file.write_text, "")
    scheduler = SCHEDULER_MAP.partition("/")[0]
    server = Server(held=[scheduler, "elsewhere"])
    async with following(server, file) as follower:
        await until(lambda: "scheduler-config" in follower.reflectors)
        await asyncio.to_thread(file.write_text, ELSEWHERE)
        await until(lambda: "chip-config" in follower.reflectors)
        server.held[scheduler].set()
        await follower.reflectors["scheduler-config"].synced.wait()
        await follower.reflectors["device-config"].synced.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not follower.listed.is_set()
        server.held["elsewhere"].set()
        await follower.listed.wait()
        assert follower.reasons() == []
