"""``python -m webhook``: see ``--help``."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from core.errors import ConfigError
from runtime import check
from runtime.process import configure_log, fast_loop
from webhook.options import parse
from webhook.run import Webhook


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until a signal ends it. Return 0 after a clean end, 2 for unusable configuration. See `runtime.check`."""
    if argv[:1] == ["check"]:
        return check.check(check.parse(argv[1:], environ, "python -m webhook check"), sys.stdin)
    try:
        options = parse(argv, environ)
        configure_log(options.log_format)
        webhook = Webhook(options)
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            runner.run(webhook.run())
    except ConfigError as e:
        for problem in e.problems:
            print(f"webhook: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
