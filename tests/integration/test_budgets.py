"""What is left of a namespace's ResourceQuotas, told where people type.

No API server double counts what quotas count: their status is written here, as Kubernetes' own controller would.
"""

import asyncio

from tests.support.worlds.controller_rig import PODS, pod, share

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
NUMBER = "requests.volcano.sh/vgpu-number"
NODES = ({"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}},)


async def told(stage, manifest, words):
    """Apply *manifest*, anew until the webhook knows of the quota, and say what it tells with *words*."""
    async with asyncio.timeout(60):
        while True:
            answer = await stage.person.apply(manifest)
            assert answer.accepted, answer.message
            found = [one for one in answer.warnings if one.startswith("CS317")]
            if any(words in one for one in found):
                return found
            await stage.admin.delete(f"{PODS}/{manifest['metadata']['name']}", grace_s=0)


async def test_a_person_is_told_what_the_namespace_has_left(staged):
    async with staged(nodes=NODES) as stage:
        spec = {"hard": {NUMBER: "4", "limits.volcano.sh/vgpu-memory": "3000", "requests.cpu": "9"}}
        await stage.admin.create(QUOTAS, {"metadata": {"name": "team"}, "spec": spec})
        used = {"status": {"hard": spec["hard"], "used": {NUMBER: "1", "requests.cpu": "1"}}}
        await stage.admin.patch(f"{QUOTAS}/team/status", used)
        manifest = {"apiVersion": "v1", "kind": "Pod"} | pod("p", share(1000))
        assert await told(stage, manifest, "3 of 4 left") == [
            "CS317 limits.volcano.sh/vgpu-memory: 1000 requested of the 3000 of ResourceQuota team; pods of the "
            "namespace beyond it wait",
            f"CS317 {NUMBER}: 1 requested, 3 of 4 left in ResourceQuota team, 2 with this pod",
        ]
        await stage.admin.delete(f"{QUOTAS}/team")
