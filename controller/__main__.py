"""``python -m controller``, and ``python -m controller audit``: see ``--help``."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from controller import audit_command
from controller.config import Config, parse
from controller.run import Controller
from core.errors import ConfigError, InvariantError
from kube.lease import LeaseLostError
from runtime.process import configure_log, fast_loop, first, problems

_OK, _LEASE_LOST, _BAD_CONFIGURATION, _WE_ARE_WRONG = 0, 1, 2, 3


def main(
    argv: Sequence[str],
    environ: Mapping[str, str],
    make: Callable[[Config, Mapping[str, str]], Controller] = Controller,
) -> int:
    """Run until a signal ends it, or audit once; return the exit code. *make*: makes the controller."""
    if argv[:1] == ["audit"]:
        configure_log()
        answers: list[int] = []
        failed = exit_code(lambda: answers.append(audit_command.run(argv[1:], environ)))
        return answers[0] if answers else failed

    def run() -> None:
        config = parse(argv, environ)
        configure_log(config.log_format)
        controller = make(config, environ)
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            runner.run(controller.run())

    return exit_code(run)


def exit_code(run: Callable[[], None]) -> int:
    """Call *run*, and map its errors to an exit code.

    Returns:
        0 after a clean end, 1 if another process may lead now, 2 for unusable configuration, 3 for a bug in cardshare,
        after which the process should be restarted.
    """
    code = _OK
    try:
        run()
    except* ConfigError as group:
        for problem in problems(group):
            print(f"controller: {problem}", file=sys.stderr)
        code = _BAD_CONFIGURATION
    except* LeaseLostError as group:
        print(f"controller: stopping, so that another one leads: {first(group)}", file=sys.stderr)
        code = _LEASE_LOST
    except* InvariantError as group:
        print(f"controller: an invariant is broken; stopping to rebuild its state: {first(group)}", file=sys.stderr)
        code = _WE_ARE_WRONG
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
