"""Claims and volumes for scenarios, and a provisioner that serves them."""

import asyncio
from contextlib import asynccontextmanager

from sandbox.players.provisioner import NAME, Mood, Provisioner
from tests.support.worlds.controller_rig import PODS, pod, share

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def claim(name, storage_class="later"):
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def mounting(name, claim_name, memory_mib=1000):
    made = pod(name, share(memory_mib))
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return made


@asynccontextmanager
async def storage(world, mood=Mood.MAKES):
    """Classes, and a provisioner that serves them as long as this lasts."""
    provisioner = Provisioner(world.client, mood)
    playing = asyncio.create_task(provisioner.run())
    for name, mode in (("now", "Immediate"), ("later", "WaitForFirstConsumer")):
        await world.client.create(CLASSES, {"metadata": {"name": name}, "provisioner": NAME, "volumeBindingMode": mode})
    try:
        yield provisioner
    finally:
        # Claims in use are kept by what the provisioner plays too.
        provisioner.mood = Mood.MAKES
        for path in (PODS, CLAIMS, VOLUMES, CLASSES):
            for one in await world.client.list(path):
                await world.client.delete(f"{path}/{one['metadata']['name']}", grace_s=0)
        async with asyncio.timeout(60.0):
            while await world.client.list(CLAIMS) or await world.client.list(VOLUMES):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        playing.cancel()
