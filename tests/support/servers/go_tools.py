"""Finds or builds helm, promtool and cert-manager, each from a Go module of its own in `tests/tools/`.

Who names one is obeyed (`CARDSHARE_HELM`, `CARDSHARE_PROMTOOL`, `CARDSHARE_CERT_MANAGER`, then the `PATH`). To build
one takes minutes, so that it is done only when it is asked for, once, into the cache in which the API server is kept:

    PYTHONPATH=. .venv/bin/python -m tests.support.servers.go_tools
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MODULES: Final = Path(__file__).resolve().parents[2] / "tools"
# What charts are rendered for where no cluster says it: the version of tests/realapi.
_KUBERNETES: Final = ("1", "37")
_BUILD_WITHIN_S: Final = 1800


class BuildFailedError(Exception):
    """There is no Go, or it cannot build the module; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One program: what names it, the package that it is built from, and the variables that its build sets.

    crds: module and folder of the kinds that it serves, which are laid into a folder `crds` beside it.
    """

    name: str
    variable: str
    package: str
    stamps: Mapping[str, str] = field(default_factory=dict)
    crds: tuple[str, str] | None = None

    @property
    def module(self) -> Path:
        """The folder of its Go module."""
        return _MODULES / self.name


HELM: Final = Tool(
    name="helm",
    variable="CARDSHARE_HELM",
    package="helm.sh/helm/v3/cmd/helm",
    stamps={
        f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}": number
        for package in ("lint/rules", "chartutil")
        for part, number in zip(("Major", "Minor"), _KUBERNETES, strict=True)
    },
)
PROMTOOL: Final = Tool(
    name="promtool",
    variable="CARDSHARE_PROMTOOL",
    package="github.com/prometheus/prometheus/cmd/promtool",
)
# Its commands are modules of their own, which no proxy has: the main package is ours.
CERT_MANAGER: Final = Tool(
    name="cert-manager",
    variable="CARDSHARE_CERT_MANAGER",
    package=".",
    crds=("github.com/cert-manager/cert-manager", "deploy/crds"),
)


def find(tool: Tool, environ: Mapping[str, str]) -> Path | None:
    """Where *tool* is; None where it was neither named, nor found, nor built."""
    named = environ.get(tool.variable) or shutil.which(tool.name, path=environ.get("PATH"))
    if named:
        return Path(named)
    path = _cached(tool, environ)
    return path if os.access(path, os.X_OK) else None


def build(tool: Tool, environ: Mapping[str, str]) -> Path:
    """Build *tool*, unless it is there.

    Raises:
        BuildFailedError: it cannot be built.
    """
    found = find(tool, environ)
    if found is not None:
        return found
    path = _cached(tool, environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in tool.stamps.items())])
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", flags, "-o", str(part)]
    env = {**environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        _go([*command, tool.package], tool, env)
        if tool.crds is not None:
            module, folder = tool.crds
            sources = _go(["go", "list", "-m", "-mod=readonly", "-f", "{{.Dir}}", module], tool, env)
            shutil.copytree(Path(sources.strip()) / folder, path.with_name("crds"), dirs_exist_ok=True)
    except OSError as e:
        raise BuildFailedError(f"Go is not here; name {tool.name} with {tool.variable}") from e
    except subprocess.TimeoutExpired as e:
        raise BuildFailedError(f"Go did not build {tool.name} within {_BUILD_WITHIN_S} s") from e
    except subprocess.CalledProcessError as e:
        raise BuildFailedError(f"Go cannot build {tool.name}: {e.stderr[-500:]}") from e
    part.rename(path)
    return path


def _go(command: Sequence[str], tool: Tool, env: Mapping[str, str]) -> str:
    """What the command says, run in the module of *tool*."""
    return subprocess.run(
        command, cwd=tool.module, env=env, check=True, timeout=_BUILD_WITHIN_S, capture_output=True, text=True
    ).stdout


def _cached(tool: Tool, environ: Mapping[str, str]) -> Path:
    own = environ.get("CARDSHARE_CACHE")
    shared = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for source in sorted(tool.module.iterdir()):
        digest.update(source.read_bytes())
    digest.update(repr((platform.system(), platform.machine(), sorted(tool.stamps.items()))).encode())
    return (Path(own) if own else shared / "cardshare") / tool.name / digest.hexdigest() / tool.name


def main() -> int:
    """Build all, and say where they are and how long it took."""
    code = 0
    for tool in (HELM, PROMTOOL, CERT_MANAGER):
        begun_s = time.monotonic()
        try:
            path = build(tool, os.environ)
        except BuildFailedError as e:
            sys.stderr.write(f"go_tools: {e}\n")
            code = 1
        else:
            sys.stderr.write(f"go_tools: {tool.name} in {time.monotonic() - begun_s:.0f} s: {path}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
