"""The images that the real node runs, built by buildah and kept in a folder of containerd's.

cardshare's comes from its own Dockerfile, on a base of Debian's packages that has the name of its FROM line.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.node.debian import (
    BASE_PACKAGES,
    NODE_PACKAGES,
    NodeUnavailableError,
    alone,
    cache_folder,
    make_tree,
    run,
    say,
    tree_path,
)
from tests.support.node.namespaces import ROOT, CommandFailedError, Namespaces

CARDSHARE: Final = "registry.local/cardshare:0.2.0"
PLUGIN: Final = "registry.local/device-plugin:test"
# Of busybox: what pods run, and what holds a pod's namespaces.
BUSYBOX: Final = "registry.local/busybox:test"
_BASE: Final = "docker.io/library/python:3.11-slim"
_BUILD_WITHIN_S: Final = 900.0
_KEPT_MAX: Final = 3
# How folders beside the stores begin: those that a run writes to, and those that are not whole yet.
_RUN: Final = "run-"
_PART: Final = "part-"
# What the Dockerfile copies, and what the device plugin's does besides.
_CONTEXT: Final = (
    "Dockerfile",
    "requirements.lock",
    "requirements-compile.lock",
    "scripts/building/compile_core.py",
    "deploy/wheels",
    "core",
    "runtime",
    "kube",
    "certs",
    "cli",
    "webhook",
    "controller",
)
_HERE: Final = "tests/support/node"
_PLUGIN_CONTEXT: Final = (
    "requirements-node.lock",
    "sandbox",
    f"{_HERE}/Dockerfile",
    f"{_HERE}/device_plugin.py",
    f"{_HERE}/kubelet_wire.py",
)
_BUSYBOX: Final = """\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
CMD ["/bin/busybox", "sleep", "2147483647"]
"""


def store_path(environ: Mapping[str, str]) -> Path:
    """Where containerd's folder with the images of this checkout is kept, made or not."""
    trees = (tree_path(packages, environ).name for packages in (NODE_PACKAGES, BASE_PACKAGES))
    return cache_folder(environ) / "stores" / _digest(trees, (*_CONTEXT, *_PLUGIN_CONTEXT))


def build(environ: Mapping[str, str]) -> Path:
    """Build the images, unless they are there; file systems of Debian come first.

    Raises:
        NodeUnavailableError: an image cannot be built here.
    """
    node, base = make_tree(NODE_PACKAGES, environ), make_tree(BASE_PACKAGES, environ)
    path = store_path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_name("lock")):
        for left in path.parent.glob(f"{_PART}*"):
            shutil.rmtree(left, ignore_errors=True)
        if not path.exists():
            begun_s = time.monotonic()
            say("building images")
            part = Path(tempfile.mkdtemp(prefix=_PART, dir=path.parent))
            try:
                with _builder(node, base, part, environ) as builder:
                    _build_all(builder, base.name)
                part.rename(path)
            except (CommandFailedError, RuntimeError) as e:
                raise NodeUnavailableError(f"an image cannot be built: {e}") from e
            finally:
                shutil.rmtree(part, ignore_errors=True)
            say(f"images took {time.monotonic() - begun_s:.0f} s")
        path.touch()
        forget_old_stores(path.parent)
    return path


def forget_old_stores(folder: Path) -> None:
    """Remove all but the stores used last; copies that runs write to are no stores."""
    stores = [one for one in folder.iterdir() if one.is_dir() and not one.name.startswith((_RUN, _PART))]
    for old in sorted(stores, key=lambda one: one.stat().st_mtime)[:-_KEPT_MAX]:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def copied(store: Path) -> Iterator[Path]:
    """A copy of *store* to write to, gone afterwards: links, but for the databases, which are written in place.

    Copies of runs that were killed go too. A run holds the lock of its own, which the kernel frees when it dies.
    """
    with alone(store.with_name("runs.lock")):
        for left in store.parent.glob(f"{_RUN}*"):
            _remove_unless_held(left)
        copy = Path(tempfile.mkdtemp(prefix=_RUN, dir=store.parent))
        held = os.open(copy, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        run(("cp", "-al", f"{store}/.", copy))
        for database in store.rglob("*.db"):
            there = copy / database.relative_to(store)
            there.unlink()
            shutil.copy2(database, there)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)
        os.close(held)


def _remove_unless_held(copy: Path) -> None:
    with suppress(FileNotFoundError):
        held = os.open(copy, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            shutil.rmtree(copy, ignore_errors=True)
        finally:
            os.close(held)


@contextmanager
def _builder(node: Path, base: Path, store: Path, environ: Mapping[str, str]) -> Iterator[Namespaces]:
    """Buildah and containerd, where they see the checkout, the base and the network of this machine."""
    cache = cache_folder(environ)
    for folder in ("containers", "logs"):
        (cache / folder).mkdir(exist_ok=True)
    binds = {
        "/checkout": (ROOT, "ro"),
        "/base": (base, "ro"),
        "/var/lib/containerd": (store, "rw"),
        "/var/lib/containers": (cache / "containers", "rw"),
        "/etc/resolv.conf": (Path("/etc/resolv.conf").resolve(), "ro"),
        "/etc/hosts": (Path("/etc/hosts"), "ro"),
    }
    with Namespaces(node, logs=cache / "logs", binds=binds, isolated=False) as builder:
        yield builder


def _build_all(builder: Namespaces, base: str) -> None:
    containerd = builder.start("containerd", "containerd")
    shutil.copy(builder.tree / "bin/busybox", builder.share / "busybox")
    (builder.share / "Dockerfile").write_text(_BUSYBOX, encoding="utf-8")
    _build(builder, BUSYBOX, "/share")
    _build_base(builder, base)
    # With default arguments: this base has no headers of Python, so that core is interpreted.
    _build(builder, CARDSHARE, "/checkout")
    own = ("--ignorefile", "/dev/null", "--file", f"/checkout/{_HERE}/Dockerfile")
    _build(builder, PLUGIN, "/checkout", *own)
    builder.children.stop(containerd)


def _build_base(builder: Namespaces, key: str) -> None:
    """The base, under the name in the Dockerfile, unless the store has that of this file system."""
    marked = f"localhost/base:{key}"
    if not builder.run("buildah", "images", "--quiet", "--filter", f"reference={marked}").strip():
        container = builder.run("buildah", "from", "scratch").strip()
        builder.run("buildah", "copy", "--quiet", container, "/base", "/", within_s=_BUILD_WITHIN_S)
        builder.run("buildah", "config", "--cmd", "python3", container)
        builder.run("buildah", "commit", "--quiet", "--rm", container, marked, within_s=_BUILD_WITHIN_S)
    builder.run("buildah", "tag", marked, _BASE)


def _build(builder: Namespaces, name: str, context: str, *options: str) -> None:
    """Build an image, and hand it to containerd."""
    how = ("--pull-never", "--isolation", "chroot", "--layers", *options, "--tag", name)
    builder.run("buildah", "build", *how, context, within_s=_BUILD_WITHIN_S)
    archive = "/share/image.tar"
    builder.run("buildah", "push", "--quiet", name, f"docker-archive:{archive}:{name}", within_s=_BUILD_WITHIN_S)
    builder.run("ctr", "-n", "k8s.io", "images", "import", archive, within_s=_BUILD_WITHIN_S)
    builder.run("rm", archive)


def _digest(trees: Iterable[str], context: Sequence[str]) -> str:
    found = hashlib.sha256(" ".join(trees).encode())
    for entry in context:
        top = ROOT / entry
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for path in files:
            if "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]
