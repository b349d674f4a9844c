"""The image as one file, by whichever builder is on this machine."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

_WITHIN_S: Final = 1200
# The last lines of a builder say why it failed.
_SAID_CHARS: Final = 600


class NoImageError(Exception):
    """No image can be built here; the text says why."""


def build(root: Path, version: str, path: Path) -> None:
    """Build the image of the checkout *root* into the archive *path*, for `docker load`, `podman load` or skopeo.

    Raises:
        NoImageError: there is no builder, or it failed: most often the base image cannot be pulled.
    """
    image = f"cardshare:{version}"
    path.unlink(missing_ok=True)
    if (builder := shutil.which("buildah")) is not None:
        _run(builder, "build", "--timestamp", "0", "--tag", image, str(root))
        _run(builder, "push", image, f"docker-archive:{path}:{image}")
        return
    builder = shutil.which("docker") or shutil.which("podman")
    if builder is None:
        raise NoImageError("none of buildah, docker and podman is on PATH")
    _run(builder, "build", "--tag", image, str(root))
    _run(builder, "save", "--output", str(path), image)


def _run(*command: str) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise NoImageError(f"{' '.join(command[:2])}: {e}") from e
    if ended.returncode:
        raise NoImageError(f"{' '.join(command[:2])}: {(ended.stderr or ended.stdout).strip()[-_SAID_CHARS:]}")
