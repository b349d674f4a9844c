"""The rights by which a real API server knows that HAMi is installed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.servers.rest import Rest

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NAME = "hami-scheduler"


@asynccontextmanager
async def hamis_rights(admin: Rest) -> AsyncIterator[None]:
    """Its scheduler may bind pods meanwhile, as its chart has it."""
    rules = [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME}
    subject = {"kind": "ServiceAccount", "namespace": "kube-system", "name": _NAME}
    await admin.made(f"{_RBAC}/clusterroles", {"metadata": {"name": _NAME}, "rules": rules})
    binding = {"metadata": {"name": _NAME}, "roleRef": role, "subjects": [subject]}
    await admin.made(f"{_RBAC}/clusterrolebindings", binding)
    try:
        yield
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            await admin.delete(f"{_RBAC}/{kind}/{_NAME}")
