"""Renders the chart: by helm, where there is one, or by `tests/helm`, which does with templates what helm does.

Helm itself is `tests.support.servers.go_tools`', and takes minutes to build; `tests/helm` is a small Go module, built
once into a cache outside the tree. It knows nothing of values.schema.json.
"""

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.servers import go_tools

MODULE: Final = Path(__file__).resolve().parents[2] / "helm"
CHART: Final = MODULE.parents[1] / "deploy" / "chart"
# 10 s of CPU with an empty cache of Go.
_BUILD_WITHIN_S: Final = 240

Json = dict[str, Any]


class RefusedError(AssertionError):
    """It ended with an error; the text is what it said."""


class UnavailableError(Exception):
    """Nothing here renders charts; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """What renders the chart. is_helm: whether it is helm itself, which judges values too."""

    program: Path
    is_helm: bool

    def render(self, values: Json | None = None, namespace: str = "cardshare-system") -> list[Json]:
        """Every object that the chart makes of *values*, hooks and tests among them.

        Raises:
            RefusedError: the values are refused.
        """
        ended = subprocess.run(
            [str(self.program), *self._words(namespace)],
            input=yaml.safe_dump(values or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if ended.returncode:
            raise RefusedError(ended.stderr)
        return [one for one in yaml.safe_load_all(ended.stdout) if one is not None]

    def _words(self, namespace: str) -> Sequence[str]:
        if not self.is_helm:
            return str(CHART), namespace
        return "template", "release", str(CHART), "--namespace", namespace, "--values", "-"


def find_or_build(environ: Mapping[str, str]) -> Renderer:
    """What renders charts here.

    Raises:
        UnavailableError: there is no helm, and no Go that builds the other.
    """
    named = go_tools.find(go_tools.HELM, environ)
    if named is not None:
        return Renderer(program=named, is_helm=True)
    path = _cached(environ)
    if not os.access(path, os.X_OK):
        _build(path, environ)
    return Renderer(program=path, is_helm=False)


def _build(path: Path, environ: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", str(part), "."]
    env = {**environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    try:
        subprocess.run(
            command, cwd=MODULE, env=env, check=True, timeout=_BUILD_WITHIN_S, capture_output=True, text=True
        )
    except OSError as e:
        raise UnavailableError("neither helm nor Go is here; name a helm with CARDSHARE_HELM") from e
    except subprocess.TimeoutExpired as e:
        raise UnavailableError(f"Go did not build tests/helm within {_BUILD_WITHIN_S} s") from e
    except subprocess.CalledProcessError as e:
        raise UnavailableError(f"Go cannot build tests/helm: {e.stderr[-500:]}") from e
    part.rename(path)


def _cached(environ: Mapping[str, str]) -> Path:
    own = environ.get("CARDSHARE_CACHE")
    shared = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MODULE / name).read_bytes())
    digest.update(f"{platform.system()} {platform.machine()}".encode())
    return (Path(own) if own else shared / "cardshare") / "helm" / digest.hexdigest() / "render"
