"""Makes all that the real node needs, once: ``python -m tests.support.node``. Exit status 3: not to be had here."""

import os
import sys

from tests.support.node import images
from tests.support.node.availability import reason_against
from tests.support.node.debian import BASE_PACKAGES, NODE_PACKAGES, NodeUnavailableError, make_tree, say
from tests.support.servers import go_tools
from tests.support.servers.realapi_binaries import RealApiUnavailable, find_or_build


def main() -> int:
    """Build, or say why not."""
    try:
        if reason := reason_against(os.environ):
            raise NodeUnavailableError(reason)
        find_or_build(os.environ)
        for packages in (NODE_PACKAGES, BASE_PACKAGES):
            make_tree(packages, os.environ)
    except (NodeUnavailableError, RealApiUnavailable) as e:
        say(str(e))
        return 3
    try:
        go_tools.build(go_tools.HELM, os.environ)
    except go_tools.BuildFailedError as e:
        say(f"the chart is not tried: {e}")
    # What our own Dockerfile cannot do here is a failure.
    try:
        images.build(os.environ)
    except NodeUnavailableError as e:
        say(str(e))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
