"""The API server double keeps policies, as any object, and judges nothing by them: tests/e2e/test_policies.py does."""

from pathlib import Path
from typing import Any

import yaml

from sandbox.cluster import ClusterSettings, running_cluster

POLICY = Path(__file__).parents[2] / "deploy/base/policy.yaml"
PLURALS = {
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


async def test_policies_are_kept_as_they_are_and_deny_nothing_here():
    policies = [one for one in yaml.safe_load_all(POLICY.read_text()) if one["kind"] in PLURALS]
    forged: dict[str, Any] = {
        "metadata": {"name": "p", "annotations": {"volcano.sh/vgpu-ids-new": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    async with running_cluster(settings=ClusterSettings(kubelet=None)) as cluster:
        for one in policies:
            path = PLURALS[one["kind"]]
            await cluster.admin.create(path, one)
            assert (await cluster.admin.get(f"{path}/{one['metadata']['name']}"))["spec"] == one["spec"]
        found = await cluster.admin.create("/api/v1/namespaces/default/pods", forged)
    assert found["metadata"]["annotations"] == forged["metadata"]["annotations"]
