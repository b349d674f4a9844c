"""``python -m tests.conform``: see `tests.conform.run`."""

from tests.conform.run import main

if __name__ == "__main__":
    raise SystemExit(main())
