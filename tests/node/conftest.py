"""Everything here runs on a real node: kubelet, containerd and kube-proxy in namespaces of its own.

Without it these tests are skipped, with the reason; with `CARDSHARE_NODE=required` they fail instead. `scripts/e2e
--node` makes all that they need, and runs them. `CARDSHARE_NODE_LOGS` names a folder for all logs.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import images
from tests.support.node.availability import reason_against
from tests.support.node.cluster import Cluster
from tests.support.node.debian import NODE_PACKAGES, tree_path
from tests.support.node.plugins import shared_documents
from tests.support.node.world import World
from tests.support.servers import go_tools
from tests.support.servers.realapi_binaries import RealApiUnavailable, find


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node, shared; tests leave it as it was."""
    environ = dict(os.environ)
    if reason := _reason_against(environ):
        if environ.get("CARDSHARE_NODE") == "required":
            pytest.fail(f"no real node: {reason}", pytrace=False)
        pytest.skip(f"no real node: {reason}")
    named = environ.get("CARDSHARE_NODE_LOGS")
    logs = Path(named, environ.get("PYTEST_XDIST_WORKER", "")) if named else tmp_path_factory.mktemp("node")
    helm = go_tools.find(go_tools.HELM, environ)
    programs = {"helm": helm} if helm else {}
    with (
        images.copied(images.store_path(environ)) as store,
        Cluster(find(environ), tree_path(NODE_PACKAGES, environ), store, logs=logs, programs=programs) as made,
    ):
        items = {"apiVersion": "v1", "kind": "List", "items": shared_documents()}
        made.kubectl("apply", "-f", "-", text=json.dumps(items))
        yield made


@pytest.fixture
def empty(world: World) -> Iterator[World]:
    """The node with no pod of a test, before and after."""
    yield world
    world.remove()


def _reason_against(environ: dict[str, str]) -> str:
    if reason := reason_against(environ):
        return reason
    try:
        binaries = find(environ)
    except RealApiUnavailable as e:
        return e.reason
    missing = [name for name in binaries.__slots__ if getattr(binaries, name) is None]
    if missing:
        return f"{', '.join(missing)} not found"
    if not images.store_path(environ).exists():
        return "its images are not built; scripts/e2e --node builds them"
    return ""
