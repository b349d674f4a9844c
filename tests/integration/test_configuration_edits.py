"""Edits of the ConfigMaps that are read as configuration: judged before they are stored, and then taken."""

from __future__ import annotations

import signal

import pytest

from sandbox.client import ApiStatusError
from sandbox.demo.product import NAMESPACE
from tests.support.worlds.controller_rig import OpensStage

OWN = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DEVICES = "/api/v1/namespaces/kube-system/configmaps/volcano-vgpu-device-config"
GOOD = {"cardshare.yaml": "scheduler_names: [cardshare]\n"}
WRONG = {"cardshare.yaml": "polizy: spread\n"}


def named(name, data):
    return {"metadata": {"name": name}, "data": data}


async def test_wrong_settings_are_refused_and_what_others_own_is_stored(staged: OpensStage):
    async with staged() as stage:
        maps, own = stage.admin, f"{OWN}/cardshare-settings"
        with pytest.raises(ApiStatusError, match="did you mean 'policy'"):
            await maps.create(OWN, named("cardshare-settings", WRONG))
        made = await maps.create(OWN, named("cardshare-settings", GOOD))
        with pytest.raises(ApiStatusError, match=r"CS602 .*cardshare\.yaml: polizy: there is no such setting"):
            await maps.patch(own, {"data": WRONG})
        with pytest.raises(ApiStatusError, match=r"volcano-scheduler\.conf: tiers: found '3'; write a list"):
            await maps.patch(own, {"data": {"volcano-scheduler.conf": "tiers: 3\n"}})
        assert (await maps.get(own))["data"] == made["data"]
        # Of another name it is nobody's configuration.
        await maps.create(OWN, named("mine", WRONG))
        devices = await maps.get(DEVICES)
        await maps.patch(DEVICES, {"data": {"device-config.yaml": "nvidia: [\n"}})
        await maps.patch(DEVICES, {"data": devices["data"]})


async def test_settings_are_mended_whatever_was_written_while_the_webhook_was_away(staged: OpensStage):
    async with staged() as stage:
        maps, own = stage.admin, f"{OWN}/cardshare-settings"
        webhook = stage.product.webhook
        webhook.signal(signal.SIGSTOP)
        try:
            await maps.create(OWN, named("cardshare-settings", WRONG))
        finally:
            webhook.signal(signal.SIGCONT)
        await maps.patch(own, {"metadata": {"labels": {"noted": "1"}}})
        with pytest.raises(ApiStatusError, match="polizy"):
            await maps.patch(own, {"data": {"cardshare.yaml": "polizy: pack\n"}})
        await maps.patch(own, {"data": GOOD})
        await maps.delete(own)
