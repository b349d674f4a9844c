"""Who binds a pod writes its annotations too: nobody but schedulers says by a Binding which cards a pod has."""

import pytest

from sandbox.client import ApiStatusError
from tests.integration.test_failing_plugins import VGPU, seen
from tests.integration.test_webhook_away import stopped
from tests.support.worlds.controller_rig import PODS

NODES = [VGPU]
KEY = "volcano.sh/vgpu-ids-new"
CORE = PODS.removesuffix("/pods")
POD = {
    "metadata": {"name": "p"},
    "spec": {
        "schedulerName": "nobody",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}],
    },
}


def binding(**annotations):
    target = {"apiVersion": "v1", "kind": "Node", "name": VGPU["name"]}
    metadata = {"name": "p", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", f"{CORE}/bindings"], ids=["the pod's", "the older way"])
async def test_not_even_an_administrator_assigns_cards_by_a_binding(staged, path: str):
    async with staged(nodes=NODES) as stage:
        await stage.admin.create(PODS, POD)
        with pytest.raises(ApiStatusError, match=f"CS301 annotation {KEY} of the Binding: found 'GPU-0,NVIDIA,1,1:'"):
            await stage.admin.create(path, binding(**{KEY: "GPU-0,NVIDIA,1,1:"}))
        found = await stage.admin.get(f"{PODS}/p")
        assert "nodeName" not in found["spec"]
        assert KEY not in found["metadata"].get("annotations", {})


async def test_while_the_webhook_is_away_only_bindings_that_assign_cards_wait(staged):
    async with staged(nodes=NODES) as stage:
        await stage.admin.create(PODS, POD)
        with stopped(stage.product.webhook):
            with pytest.raises(ApiStatusError, match=r"failed calling webhook \"bind\.pods\.cardshare\.io\""):
                await stage.admin.create(f"{PODS}/p/binding", binding(**{KEY: "GPU-0,NVIDIA,1,1:"}))
            await stage.admin.create(f"{PODS}/p/binding", binding(team="a"))
        await seen(stage, "p", lambda s: s.phase == "Failed")  # Its node's device plugin finds no cards assigned.
        found = await stage.admin.get(f"{PODS}/p")
        assert (found["spec"]["nodeName"], found["metadata"]["annotations"]["team"]) == (VGPU["name"], "a")
