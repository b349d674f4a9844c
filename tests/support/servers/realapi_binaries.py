"""Finds or builds etcd, kubectl and the programs of Kubernetes, those of a node too.

A named binary comes first (`KUBE_APISERVER`, `ETCD`, `KUBE_SCHEDULER`, `KUBE_CONTROLLER_MANAGER`, `KUBECTL`, `KUBELET`,
`KUBE_PROXY`, then the folder `KUBEBUILDER_ASSETS`); all others come from the Go module in `tests/realapi/`, built once
into a cache outside the tree. Running them is left to `tests.support.servers.realapi`.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).resolve().parents[2] / "realapi"
BUILD_COMMAND: Final = "PYTHONPATH=. .venv/bin/python -m tests.support.servers.realapi --build"

# In the order of their cost, so that a module that cannot be had shows before the long part.
_PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
}
_VARIABLES: Final[Mapping[str, str]] = {
    "etcd": "ETCD",
    "kube-apiserver": "KUBE_APISERVER",
    "kube-scheduler": "KUBE_SCHEDULER",
    "kube-controller-manager": "KUBE_CONTROLLER_MANAGER",
    "kubectl": "KUBECTL",
    "kubelet": "KUBELET",
    "kube-proxy": "KUBE_PROXY",
}
_PROGRESS_EVERY_S: Final = 30.0


# Nothing went wrong where this is raised: tests are skipped with its text.
class RealApiUnavailable(Exception):  # noqa: N818
    """There is no real API server to be had here; the text says why and what to do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Where the programs are. The API server and etcd are there; the others perhaps."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path | None
    kube_controller_manager: Path | None
    kubectl: Path | None
    kubelet: Path | None
    kube_proxy: Path | None


def find(environ: Mapping[str, str]) -> Binaries:
    """The binaries that are here already; builds nothing.

    Raises:
        RealApiUnavailable: kube-apiserver or etcd is missing, or a variable names what cannot be run.
    """
    found = {name: _find_one(name, environ) for name in _PACKAGES}
    missing = [name for name in ("kube-apiserver", "etcd") if found[name] is None]
    if missing:
        go_version(environ)
        raise RealApiUnavailable(
            f"{' and '.join(missing)} not built yet; build once (4 to 6 minutes on 2 cores): {BUILD_COMMAND}"
        )
    etcd, kube_apiserver = found["etcd"], found["kube-apiserver"]
    assert etcd is not None
    assert kube_apiserver is not None
    kubectl = found["kubectl"] or _on_path("kubectl", environ)
    return Binaries(
        etcd=etcd,
        kube_apiserver=kube_apiserver,
        kube_scheduler=found["kube-scheduler"],
        kube_controller_manager=found["kube-controller-manager"],
        kubectl=kubectl,
        kubelet=found["kubelet"],
        kube_proxy=found["kube-proxy"],
    )


def find_or_build(environ: Mapping[str, str]) -> Binaries:
    """The binaries, built where they are neither named nor in the cache. Says on standard error what takes long.

    Raises:
        RealApiUnavailable: there is no Go that can build them, or it failed.
    """
    # A named server and etcd are enough: who has those may have no Go at all.
    if any(_find_one(name, environ) is None for name in ("etcd", "kube-apiserver")):
        _build(environ)
    return find(environ)


def go_version(environ: Mapping[str, str]) -> str:
    """The version of Go that builds the module, such as `go1.26.8`.

    Raises:
        RealApiUnavailable: Go is not there or too old.
    """
    wanted = re.search(r"^go (\d+\.\d+)", (MODULE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted is not None
    hint = f"install Go {wanted[1]}, or name binaries with KUBE_APISERVER and ETCD, or KUBEBUILDER_ASSETS"
    if _on_path("go", environ) is None:
        raise RealApiUnavailable(f"Go {wanted[1]} not found; {hint}")
    # Asked inside the module, an older Go fetches the version that go.mod wants, or says why it cannot.
    asked = subprocess.run(
        ["go", "env", "GOVERSION"], cwd=MODULE, env=dict(environ), capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise RealApiUnavailable(f"Go {wanted[1]} not found ({asked.stderr.strip()}); {hint}")
    return asked.stdout.strip()


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where this module's binaries for this platform are kept, made or not."""
    own = environ.get("CARDSHARE_CACHE")
    shared = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    digest.update(f"{platform.system()} {platform.machine()}".encode())
    return (Path(own) if own else shared / "cardshare") / "realapi" / digest.hexdigest()


def _find_one(name: str, environ: Mapping[str, str]) -> Path | None:
    if named := environ.get(_VARIABLES[name]):
        path = Path(named)
        if not os.access(path, os.X_OK) or path.is_dir():
            raise RealApiUnavailable(f"{_VARIABLES[name]} names {named}, which is no program; correct it or unset it")
        return path.resolve()
    folders = [Path(assets)] if (assets := environ.get("KUBEBUILDER_ASSETS")) else []
    for folder in (*folders, cache_folder(environ)):
        path = folder / name
        if os.access(path, os.X_OK):
            return path.resolve()
    return None


def _on_path(name: str, environ: Mapping[str, str]) -> Path | None:
    path = shutil.which(name, path=environ.get("PATH"))
    return Path(path) if path else None


def _build(environ: Mapping[str, str]) -> None:
    folder = cache_folder(environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(folder.name + ".lock")):
        if folder.exists():
            return
        _say(f"building with {go_version(environ)} into {folder}")
        part = Path(tempfile.mkdtemp(prefix="part-", dir=folder.parent))
        try:
            for number, (name, package) in enumerate(_PACKAGES.items(), start=1):
                _go_build(part / name, package, f"{name} ({number} of {len(_PACKAGES)})", environ)
            # All or nothing: a folder of the final name is whole, also after a power cut in the middle.
            part.chmod(0o755)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _go_build(output: Path, package: str, title: str, environ: Mapping[str, str]) -> None:
    version = re.search(r"^\tk8s\.io/kubernetes v((\d+)\.(\d+)\S*)", _go_mod(), re.MULTILINE)
    assert version is not None
    stamps = {"gitVersion": f"v{version[1]}", "gitMajor": version[2], "gitMinor": version[3]}
    flags = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in stamps.items())])
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags]
    # Without cgo no C compiler is needed, and the binaries run wherever the kernel does.
    env = {**environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    begun_s = time.monotonic()
    _say(f"building {title}")
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command, "-o", str(output), package], cwd=MODULE, env=env, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            while True:
                try:
                    code = process.wait(_PROGRESS_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    _say(f"building {title}: {time.monotonic() - begun_s:.0f} s so far")
        finally:
            # go passes an interrupt on to its compilers; killed, it would leave them running.
            process.send_signal(signal.SIGINT)
            process.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
    if code:
        raise RealApiUnavailable(f"go build {package} failed, exit code {code}:\n{text[-2000:]}")
    _say(f"built {title} in {time.monotonic() - begun_s:.0f} s, {output.stat().st_size / 1e6:.0f} MB")


def _go_mod() -> str:
    return (MODULE / "go.mod").read_text(encoding="utf-8")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold *lock*, waiting for another builder; the kernel frees it when its holder dies."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another build holds {lock}; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    sys.stderr.write(f"realapi: {text}\n")
    sys.stderr.flush()
