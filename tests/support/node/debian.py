"""File systems of Debian, made once by debootstrap and kept: what a node runs on, and what an image is built on.

A machine without debootstrap gets it from Debian's archive, unpacked into the cache: nothing is installed.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SUITE: Final = "bookworm"
MIRROR: Final = "http://deb.debian.org/debian"
# What the node itself runs; buildah builds the images there.
NODE_PACKAGES: Final = (
    "buildah",
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "iproute2",
    "iptables",
    "runc",
)
# What `FROM python:3.11-slim` stands for.
BASE_PACKAGES: Final = ("ca-certificates", "python-is-python3", "python3", "python3-pip", "python3-venv")
_CERTIFICATES: Final = Path("usr/local/share/ca-certificates")
_WITHIN_S: Final = 900


class NodeUnavailableError(Exception):
    """This machine cannot have a real node; the text says why and what to do."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where all that a node is made of is kept."""
    own = environ.get("CARDSHARE_CACHE")
    shared = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(own) if own else shared / "cardshare") / "node"


def tree_path(packages: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Where the file system with *packages* is kept, made or not."""
    key = hashlib.sha256(repr((SUITE, MIRROR, sorted(packages))).encode()).hexdigest()[:16]
    return cache_folder(environ) / f"debian-{key}"


def make_tree(packages: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Make the file system with *packages*, unless it is there.

    Raises:
        NodeUnavailableError: debootstrap is not to be had, or failed.
    """
    path = tree_path(packages, environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_name(f"{path.name}.lock")):
        if path.exists():
            return path
        part = Path(tempfile.mkdtemp(prefix="part-", dir=path.parent))
        try:
            _debootstrap(part, packages, environ)
            part.chmod(0o755)
            # All or nothing: a folder of the final name is whole.
            part.rename(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return path


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold *lock*, waiting for another maker; the kernel frees it when its holder dies."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def run(
    argv: Sequence[str | Path],
    *,
    within_s: float = _WITHIN_S,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """What the command writes to its standard output.

    Raises:
        NodeUnavailableError: it failed; the text quotes it.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=within_s, check=False, env=environ, cwd=folder
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise NodeUnavailableError(f"{' '.join(words[:3])}: {e}") from e
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1500:]
        raise NodeUnavailableError(f"{' '.join(words[:4])} failed, exit code {done.returncode}: {said}")
    return done.stdout


def say(text: str) -> None:
    """Tell the person who waits."""
    sys.stderr.write(f"node: {text}\n")
    sys.stderr.flush()


def _debootstrap(target: Path, packages: Sequence[str], environ: Mapping[str, str]) -> None:
    begun_s = time.monotonic()
    program, variables = _program(environ)
    say(f"debootstrap of {SUITE} with {len(packages)} packages")
    options = ("--variant=minbase", f"--include={','.join(packages)}")
    run((program, *options, SUITE, target, MIRROR), environ=variables)
    _trust_as_this_machine(target)
    for waste in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(target / waste, ignore_errors=True)
    say(f"debootstrap took {time.monotonic() - begun_s:.0f} s")


def _program(environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The program and its environment; fetched and unpacked if this machine does not have it."""
    variables = {**environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    found = shutil.which("debootstrap", path=environ.get("PATH"))
    if found:
        return found, variables
    if not shutil.which("apt-get", path=environ.get("PATH")):
        raise NodeUnavailableError("debootstrap and apt-get not found; a real node needs a machine with Debian")
    unpacked = cache_folder(environ) / "debootstrap"
    if not unpacked.exists():
        with tempfile.TemporaryDirectory(dir=unpacked.parent) as folder:
            state = Path(folder, "state")
            (state / "lists/partial").mkdir(parents=True)
            options = [f"-oDir::State::Lists={state / 'lists'}", "-oAPT::Sandbox::User=root"]
            run(("apt-get", *options, "update"))
            run(("apt-get", *options, "download", "debootstrap"), folder=Path(folder))
            package = next(Path(folder).glob("debootstrap_*.deb"))
            run(("dpkg-deb", "-x", package, Path(folder, "tree")))
            Path(folder, "tree").rename(unpacked)
    variables["DEBOOTSTRAP_DIR"] = str(unpacked / "usr/share/debootstrap")
    return str(unpacked / "usr/sbin/debootstrap"), variables


def _trust_as_this_machine(target: Path) -> None:
    """Let pip in the file system trust what this machine trusts, such as the authority of a proxy."""
    ours = sorted(Path("/", _CERTIFICATES).glob("*.crt"))
    if not ours:
        return
    (target / _CERTIFICATES).mkdir(parents=True, exist_ok=True)
    for certificate in ours:
        shutil.copy(certificate, target / _CERTIFICATES)
    run(("chroot", target, "update-ca-certificates"))
