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

__all__ = ["admin", "installed", "namespace", "node", "prepared", "realapi", "rig", "shared_stage", "staged"]
