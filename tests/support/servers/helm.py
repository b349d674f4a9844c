"""Renders the chart by helm, which `tests.support.servers.go_tools` finds or builds."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.servers import go_tools

CHART: Final = Path(__file__).resolve().parents[3] / "deploy" / "chart"

Json = dict[str, Any]


class RefusedError(AssertionError):
    """It ended with an error; the text is what it said."""


class UnavailableError(Exception):
    """There is no helm; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """Helm, which renders the chart and checks its values."""

    program: Path

    def render(self, values: Json | None = None, namespace: str = "cardshare-system") -> list[Json]:
        """Every object that the chart makes of *values*, hooks and tests among them.

        Raises:
            RefusedError: the values are refused.
        """
        ended = subprocess.run(
            [str(self.program), "template", "release", str(CHART), "--namespace", namespace, "--values", "-"],
            input=yaml.safe_dump(values or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if ended.returncode:
            raise RefusedError(ended.stderr)
        return [one for one in yaml.load_all(ended.stdout, Loader=yaml.CSafeLoader) if one is not None]


def find(environ: Mapping[str, str]) -> Renderer:
    """What renders charts here.

    Raises:
        UnavailableError: there is no helm.
    """
    program = go_tools.find(go_tools.HELM, environ)
    if program is None:
        raise UnavailableError("helm is not here; name one with CARDSHARE_HELM, or build it: scripts/e2e")
    return Renderer(program=program)
