"""What becomes of a settings file that an example has edited, whatever the webhook does with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import yaml
from aiohttp import web

from sandbox.demo import stage as stages
from sandbox.demo.examples import ClusterChanges
from sandbox.demo.processes import ProcessFailedError
from sandbox.demo.stage import switched

SHIPPED = "policy: binpack\n"


class Webhook:
    """Counts a reload where settings differ from those in force, but for a policy that there is not."""

    def __init__(self, path):
        self.path = path
        self.reloads = 0
        self.refused = 0
        self.tells_of_refusals = False
        self._settings = yaml.safe_load(SHIPPED)

    async def metrics(self, request):
        del request
        found = yaml.safe_load(self.path.read_text())
        if found != self._settings and found["policy"] != "nonsense":
            self._settings = found
            self.reloads += 1
        if self.tells_of_refusals and found["policy"] == "nonsense":
            self.refused = 1
        lines = f'cardshare_webhook_reloads_total{{what="configuration"}} {self.reloads}\n'
        lines += f'cardshare_webhook_reload_failures_total{{what="configuration"}} {self.refused}\n'
        return web.Response(text=f"{lines}cardshare_webhook_inventory_known 1\n")


@asynccontextmanager
async def stage_in(folder):
    """A stage whose settings are in *folder*, its webhook, and what ends that."""
    path = folder / "cardshare.yaml"
    path.write_text(SHIPPED)
    webhook = Webhook(path)
    app = web.Application()
    app.router.add_get("/metrics", webhook.metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    running = SimpleNamespace(log_tail=lambda: "policy: found 'nonsense'")
    product = SimpleNamespace(settings=(folder,), webhook_url=url, webhook=running)
    try:
        yield SimpleNamespace(admin=None, product=product), webhook, runner.cleanup
    finally:
        await runner.cleanup()


async def test_settings_are_taken_before_and_after_and_the_file_is_as_it_was(tmp_path):
    async with stage_in(tmp_path) as (stage, webhook, _):
        async with switched(stage, ClusterChanges(settings={"policy": "spread"})):
            assert webhook.reloads == 1
            assert yaml.safe_load(webhook.path.read_text()) == {"policy": "spread"}
        assert (webhook.reloads, webhook.path.read_text()) == (2, SHIPPED)


async def test_what_is_in_force_already_is_not_waited_for(tmp_path):
    async with (
        stage_in(tmp_path) as (stage, webhook, _),
        asyncio.timeout(5),
        switched(stage, ClusterChanges(settings={"policy": "binpack"})),
    ):
        assert webhook.path.read_text() == SHIPPED


async def test_settings_that_are_not_taken_are_named_with_what_the_webhook_says_and_put_back(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_TAKEN_WITHIN_S", 0.2)
    async with stage_in(tmp_path) as (stage, webhook, _):
        with pytest.raises(ProcessFailedError, match="found 'nonsense'"):
            async with switched(stage, ClusterChanges(settings={"policy": "nonsense"})):
                pytest.fail("nothing is played with settings that are not in force")
        assert webhook.path.read_text() == SHIPPED


async def test_settings_that_the_webhook_refuses_are_not_waited_for(tmp_path):
    async with stage_in(tmp_path) as (stage, webhook, _), asyncio.timeout(20):
        webhook.tells_of_refusals = True
        with pytest.raises(ProcessFailedError, match="found 'nonsense'"):
            async with switched(stage, ClusterChanges(settings={"policy": "nonsense"})):
                pytest.fail("nothing is played with settings that are not in force")
        assert webhook.path.read_text() == SHIPPED


async def test_who_is_stopped_while_settings_are_taken_puts_them_back_and_waits_for_nobody(tmp_path):
    async def play(stage):
        async with switched(stage, ClusterChanges(settings={"policy": "nonsense"})):
            pass

    async with stage_in(tmp_path) as (stage, webhook, _):
        playing = asyncio.create_task(play(stage))
        while "nonsense" not in webhook.path.read_text():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)
        playing.cancel()
        done, _ = await asyncio.wait([playing], timeout=20)
        assert [one.cancelled() for one in done] == [True]
        assert webhook.path.read_text() == SHIPPED


@pytest.mark.parametrize("error", [None, ValueError("what went wrong")])
async def test_a_webhook_that_has_ended_hides_no_error_and_keeps_no_settings(tmp_path, error):
    raised = None
    async with stage_in(tmp_path) as (stage, webhook, end):
        try:
            async with switched(stage, ClusterChanges(settings={"policy": "spread"})):
                await end()
                if error is not None:
                    raise error
        except ValueError as e:
            raised = e
        assert raised is error
        assert webhook.path.read_text() == SHIPPED
