"""``python -m sandbox.conform``: see `sandbox.conform.run`."""

from sandbox.conform.run import main

if __name__ == "__main__":
    raise SystemExit(main())
