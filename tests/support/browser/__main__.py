"""Installs Chromium and what drives it: ``python -m tests.support.browser``. Exit status 3: not to be had here."""

import os
import shutil
import subprocess
import sys

from tests.support.browser.chromium import LOCK, path

_WITHIN_S = 600


def main() -> int:
    """Install what is missing, or say why not."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    try:
        if path() is None:
            if os.geteuid() or shutil.which("apt-get") is None:
                raise OSError("no chromium on PATH, and only root on Debian can install it")
            apt = ["apt-get", "--yes", "--quiet", "--no-install-recommends", "install", "chromium", "fonts-noto-cjk"]
            subprocess.run(["apt-get", "--quiet", "update"], check=False, capture_output=True, timeout=_WITHIN_S)
            subprocess.run(apt, check=True, capture_output=True, text=True, timeout=_WITHIN_S)
        subprocess.run(
            [*pip, "--disable-pip-version-check", "-r", str(LOCK)],
            check=True,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
        )
    except subprocess.SubprocessError as e:
        sys.stderr.write(f"tests.support.browser: {e}: {(getattr(e, 'stderr', None) or '')[-400:]}\n")
        return 3
    except OSError as e:
        sys.stderr.write(f"tests.support.browser: {e}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
