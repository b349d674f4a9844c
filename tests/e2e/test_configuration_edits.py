"""Edits of the configuration's ConfigMaps by kubectl, on a real API server: what is refused, told, and let through."""

import json
import re
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml

from core.names import VERSION
from sandbox.client import ApiStatusError
from tests.support.servers.manifests import NAMESPACE, KubectlFailedError, find, kubectl
from tests.support.servers.stage_realapi import Installed, away

pytestmark = pytest.mark.asyncio(loop_scope="session")

SETTINGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/cardshare-settings"
WRONG = "scheduler_names: [cardshare]\npolizy: spread\nbind_in_flight_max: 0\n"


def config_map(namespace, name, data, **labels):
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def apply(installed, document):
    """What kubectl says, and what it complains of."""
    return await kubectl(installed.api, "apply", "-f", "-", text=yaml.safe_dump(document))


async def refused(installed, document):
    with pytest.raises(KubectlFailedError) as caught:
        await apply(installed, document)
    return str(caught.value)


async def edits_judged(installed):
    """How many the webhook has answered."""
    url = f"{installed.stage.product.webhook_url}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    found = re.findall(r"^cardshare_webhook_reviews_total\{.*path=\"/configuration\".*\} (\d+)", text, re.MULTILINE)
    return sum(int(count) for count in found)


@asynccontextmanager
async def put_back(installed, *paths):
    """Afterwards these ConfigMaps are as before, or gone."""
    admin, before = installed.stage.admin, {}
    for path in paths:
        try:
            before[path] = await admin.get(path)
        except ApiStatusError:
            before[path] = None
    try:
        yield before
    finally:
        for path, found in before.items():
            if found is None:
                await admin.delete(path)
            else:
                data = (await admin.get(path)).get("data", {})
                gone = dict.fromkeys(data.keys() - found["data"].keys())
                await admin.patch(path, {"data": {**found["data"], **gone}})


def ours(installed, text, version=VERSION):
    found = find(installed.documents, "ConfigMap", "cardshare-settings")
    labels = {**found["metadata"].get("labels", {}), "app.kubernetes.io/version": version}
    metadata = {**found["metadata"], "labels": labels}
    return {**found, "metadata": metadata, "data": {"cardshare.yaml": text}}


async def test_wrong_settings_of_ours_are_refused_and_stay_as_they_were(installed: Installed):
    async with put_back(installed, SETTINGS) as before:
        said = await refused(installed, ours(installed, WRONG))
        assert 'admission webhook "configuration.cardshare.io" denied the request: CS602' in said
        assert "ConfigMap cardshare-system/cardshare-settings: cardshare.yaml: polizy: there is no such setting" in said
        assert "did you mean 'policy'?" in said
        assert "cardshare.yaml: bind_in_flight_max: found '0'; write a whole number from 1 to 1024" in said
        torn = await refused(installed, ours(installed, "policy: [\n"))
        assert "cardshare.yaml: this is not YAML" in torn
        assert "line 2" in torn
        patch = json.dumps({"data": {"cardshare.yaml": WRONG}})
        with pytest.raises(KubectlFailedError, match="polizy"):
            await kubectl(installed.api, "-n", NAMESPACE, "patch", "configmap", "cardshare-settings", "-p", patch)
        after = await installed.stage.admin.get(SETTINGS)
        assert after["data"] == before[SETTINGS]["data"]


async def test_what_is_shipped_and_what_can_be_read_is_taken_without_a_word(installed: Installed):
    async with put_back(installed, SETTINGS):
        shipped = find(installed.documents, "ConfigMap", "cardshare-settings")
        text = shipped["data"]["cardshare.yaml"]
        for one in (ours(installed, f"{text}policy: spread\n"), shipped):
            said, complaints = await apply(installed, one)
            assert ("cardshare-settings" in said, complaints) == (True, "")


async def test_settings_of_a_later_release_are_told_of_before_its_webhook_runs(installed: Installed):
    async with put_back(installed, SETTINGS):
        said, complaints = await apply(installed, ours(installed, "a_setting_of_later: 1\n", version="99.0.0"))
        assert "configured" in said
        assert "label app.kubernetes.io/version: found '99.0.0'" in complaints
        assert "CS602 cardshare.yaml: a_setting_of_later: there is no such setting" in complaints
        await apply(installed, find(installed.documents, "ConfigMap", "cardshare-settings"))


OTHERS = {
    "volcano": ("volcano-system", "volcano-scheduler-configmap", "volcano-scheduler.conf", "tiers: 3\n"),
    "devices": ("kube-system", "volcano-vgpu-device-config", "device-config.yaml", "nvidia: [\n"),
    "chips": ("kube-system", "hami-scheduler-device", "device-config.yaml", "vnpus: 3\n"),
}


@pytest.mark.parametrize(("namespace", "name", "key", "text"), OTHERS.values(), ids=OTHERS)
async def test_what_belongs_to_others_is_stored_and_told(installed: Installed, namespace, name, key, text):
    spaces = {one["metadata"]["name"] for one in await installed.stage.admin.list("/api/v1/namespaces")}
    if namespace not in spaces:
        await installed.stage.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    async with put_back(installed, f"/api/v1/namespaces/{namespace}/configmaps/{name}"):
        said, complaints = await apply(installed, config_map(namespace, name, {key: text}))
        assert name in said
        assert "Warning: CS602 cardshare cannot read this text" in complaints
        assert f"Warning: CS602 {key}: " in complaints


async def test_other_config_maps_and_edits_of_nothing_but_labels_are_not_sent(installed: Installed):
    place = "/api/v1/namespaces/{}/configmaps/{}".format
    others = [("default", "cardshare-settings"), (NAMESPACE, "mine"), ("kube-system", "mine")]
    before = await edits_judged(installed)
    async with put_back(installed, *[place(*one) for one in others]):
        for one in others:
            said, complaints = await apply(installed, config_map(*one, {"cardshare.yaml": WRONG}))
            assert ("created" in said, complaints) == (True, "")
        await installed.stage.admin.patch(SETTINGS, {"metadata": {"annotations": {"noted": "1"}}})
        assert await edits_judged(installed) == before
        await installed.stage.admin.patch(SETTINGS, {"metadata": {"annotations": {"noted": None}}})
        await installed.stage.admin.patch(SETTINGS, {"data": {"volcano-scheduler.conf": "tiers: []\n"}})
        await installed.stage.admin.patch(SETTINGS, {"data": {"volcano-scheduler.conf": None}})
        # An API server that patches what it remembers, and finds a later one stored, asks again.
        assert await edits_judged(installed) >= before + 2


async def test_settings_are_deleted_whatever_they_say_and_mended_while_the_webhook_is_away(installed: Installed):
    admin = installed.stage.admin
    shipped = find(installed.documents, "ConfigMap", "cardshare-settings")
    async with away(installed.stage.product):
        # What was written meanwhile is nobody's reason to refuse what mends it, nor what leaves it as it is.
        await apply(installed, ours(installed, WRONG))
    try:
        patch = {"metadata": {"annotations": {"noted": "1"}}, "data": {"volcano-scheduler.conf": "tiers: []\n"}}
        await admin.patch(SETTINGS, patch)
        await kubectl(installed.api, "-n", NAMESPACE, "delete", "configmap", "cardshare-settings")
    finally:
        said, complaints = await apply(installed, shipped)
    assert ("created" in said, complaints) == (True, "")
