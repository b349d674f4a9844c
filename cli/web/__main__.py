"""``python -m cli.web``: the page in the cluster; see ``--help``."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from cli.web.run import parse, run
from core.errors import ConfigError
from kube.credentials import mistake_in
from kube.errors import CredentialsError
from runtime.process import configure_log, fast_loop, first, problems


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until a signal ends it. Return 0 after a clean end, 1 for unusable credentials, 2 for unusable flags."""
    code = 0
    try:
        options = parse(argv, environ)
        if mistake := mistake_in(kubeconfig=options.kubeconfig, environ=environ):
            raise ConfigError([mistake])
        configure_log(options.log_format)
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            runner.run(run(options, environ))
    except* ConfigError as group:
        for problem in problems(group):
            print(f"web: {problem}", file=sys.stderr)
        code = 2
    except* CredentialsError as group:
        print(f"web: {first(group)}", file=sys.stderr)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
