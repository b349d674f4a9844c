"""Everything here runs against a real API server."""

from tests.support.servers.fixtures_realapi import (
    admin,
    installed,
    namespace,
    node,
    prepared,
    realapi,
    rig,
    shared_stage,
    staged,
)
from tests.support.servers.policies import cluster, guarded

__all__ = [
    "admin",
    "cluster",
    "guarded",
    "installed",
    "namespace",
    "node",
    "prepared",
    "realapi",
    "rig",
    "shared_stage",
    "staged",
]
