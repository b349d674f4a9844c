"""What `kubectl cards` says on the pages that show it, in either language, is what it says in a run.

Below each line ``$ kubectl cards ...`` inside a block stands the output of that command; `written` puts it there anew.
Times and how often an event was counted differ from run to run, and are the same on the page.
"""

import asyncio
import contextlib
import io
import json
import re
import shlex
import ssl
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from certs.files import ensure
from certs.pair import WantedPair
from cli import doctor_checks
from cli.__main__ import run
from cli.options import parse
from core.view.cards import Cards
from core.view.explained import Explained, ExplainedPods
from core.view.fits import Fits
from core.view.history import Why
from core.view.plan import Plan
from core.view.queues import Queues
from core.view.simulated import Simulated
from core.view.waiting import Waiting
from sandbox.demo.processes import free_port
from tests.support.worlds.controller_rig import Rig, pod, share
from tests.support.worlds.rig_double import double_rig
from tests.support.worlds.volcano import create, install

_ROOT: Final = Path(__file__).parents[3]
PAGE: Final = _ROOT / "docs/operators/kubectl-cards.md"
PAGES: Final = (
    PAGE,
    PAGE.with_name("simulate.md"),
    *(_ROOT / name for name in ("README.md", "docs/users/why-pods-wait.md")),
    *(_ROOT / "docs/zh" / name for name in ("README.md", "users/why-pods-wait.md", "operators/simulate.md")),
)
SCHEMA: Final = PAGE.with_name("kubectl-cards.schema.json")
NODES: Final[list[dict[str, Any]]] = [
    {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}},
    {
        "name": "a100-a",
        "plugin": {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 1, "mode": "mig"},
    },
    {"name": "share-a", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 1}},
    {"name": "cpu-a"},
]
_T4: Final = {"nvidia.com/use-gputype": "T4"}


def _owned(pod: dict[str, Any]) -> dict[str, Any]:
    """*pod* of a ReplicaSet, which would create it again."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "eval", "uid": "eval", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


RUNNING: Final = (
    pod("train", share(12000, cores=60), annotations=_T4),
    _owned(pod("eval", share(10000), annotations=_T4)),
    pod("infer", share(5000), annotations={"volcano.sh/vgpu-mode": "mig"}),
    pod("small", {"volcano.sh/gpu-memory": "1024"}),
)
_WAITING: Final = pod("large", share(8000), annotations=_T4)
QUEUES: Final[list[dict[str, Any]]] = [
    {"metadata": {"name": "default"}, "spec": {"weight": 1}},
    {
        "metadata": {"name": "research"},
        "spec": {
            "weight": 4,
            "capability": {"volcano.sh/vgpu-number": "8", "cpu": "64"},
            "deserved": {"volcano.sh/vgpu-number": "4"},
        },
    },
]
_SERVED_AS: Final = "cardshare-controller.cardshare-system.svc"
_COMMAND: Final = re.compile(r"^\$ kubectl cards (.*)\n((?:(?!```|\$ ).*\n)*)", re.MULTILINE)
_FILE: Final = re.compile(r"^```yaml\n# (\S+\.yaml)\n((?:(?!```).*\n)*)```", re.MULTILINE)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_COUNT: Final = re.compile(
    r' \(x\d+\)| \(\d+ times since [^)]*\)|(?<="count": )\d+|(?<="times": )\d+|(?<="change": )\d+'
    r"|(?<=was bound )\d+(?= s)"
)
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def schema() -> str:
    """The JSON Schema of what ``-o json`` prints: of each command that has it."""
    answers, components = msgspec.json.schema_components(
        (Cards, Explained, ExplainedPods, Why, Waiting, Fits, Queues, Simulated, Plan, doctor_checks.Report),
        ref_template="#/$defs/{name}",
    )
    dialect = "https://json-schema.org/draft/2020-12/schema"
    whole = {"$schema": dialect, "title": "kubectl cards -o json", "anyOf": [*answers], "$defs": components}
    return json.dumps(whole, indent=2) + "\n"


def commands(page: str) -> list[str]:
    """What is run on *page*, without ``kubectl cards``."""
    return [found[1] for found in _COMMAND.finditer(page)]


def written(page: str, said: Mapping[str, str]) -> str:
    """*page* with the outputs in *said* by command."""
    return _COMMAND.sub(lambda found: f"$ kubectl cards {found[1]}\n{said[found[1]]}", page)


async def play(world: Rig, page: str) -> dict[str, str]:
    """Set the scene in *world* and run every command of *page*: its output by command."""
    places = await _scene(world) | _files(world, page)
    kubeconfig = str(world.write_admins_kubeconfig())
    return {command: await _output(command, places, kubeconfig) for command in commands(page)}


def _files(world: Rig, page: str) -> dict[str, str]:
    """The manifests on *page*, each of which begins with its name in a comment, as files."""
    places = {}
    for name, text in _FILE.findall(page):
        path = world.folder / name
        path.write_text(text, encoding="utf-8")
        places[name] = str(path)
    return places


async def _scene(world: Rig) -> dict[str, str]:
    """Pods that run and one that waits; where what the page names is to be found here."""
    await install(world.client)
    for queue in QUEUES:
        await create(world.client, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **queue})
    certs, port, token = world.folder / "certs", free_port(), world.folder / "token"
    ensure(certs, WantedPair(dns_names=(_SERVED_AS,), days=2, ca_days=9), datetime.now(UTC))
    await world.controller("--preview-listen", f"127.0.0.1:{port}", "--cert-dir", str(certs))
    # One after the other: which card is chosen depends on those that are in use.
    for one in RUNNING:
        await world.add(one)
        await world.phase(one["metadata"]["name"])
    await world.add(_WAITING)
    await world.waits("large", "MiB free")
    for name, reason in (("train", "Scheduled"), ("large", "FailedScheduling")):
        await world.until(lambda name=name, reason=reason: _has_event(world, name, reason))
    token.write_text(await world.token("cardshare-explain", audiences=("cardshare-controller",)))
    await world.until(lambda: _listens(port, certs))
    return {"https://localhost:8444": f"https://127.0.0.1:{port}", "token": str(token), "ca.crt": str(certs / "ca.crt")}


async def _has_event(world: Rig, pod_name: str, reason: str) -> bool:
    events = await world.client.list("/api/v1/namespaces/default/events")
    return any(one["involvedObject"].get("name") == pod_name and one["reason"] == reason for one in events)


async def _listens(port: int, certs: Path) -> bool:
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/", ssl=context, server_hostname=_SERVED_AS),
        ):
            return True
    except aiohttp.ClientError:
        return False


async def _output(command: str, places: Mapping[str, str], kubeconfig: str) -> str:
    """What is said on both streams, then the exit status where the command asks for it."""
    line, _, asks = command.partition("; ")
    words = [places.get(word, word) for word in shlex.split(line)]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = await run(parse([*words, "--kubeconfig", kubeconfig], {}), {})
    text = said.getvalue() + (f"{code}\n" if asks == "echo $?" else "")
    text = _UID.sub("6f1b8f0e-7a56-4c56-9d29-1b1d4d3f2a10", _TIME.sub("2026-01-02T03:04:05Z", text))
    return _COUNT.sub(_same, text)


def _same(found: re.Match[str]) -> str:
    return "1" if found[0].isdigit() else ""


def main() -> int:
    """Write the pages anew."""
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES}

    async def made(folder: Path) -> dict[str, str]:
        async with double_rig(folder, NODES) as world:
            return await play(world, "".join(pages.values()))

    with tempfile.TemporaryDirectory() as folder:
        said = asyncio.run(made(Path(folder)))
    for path, page in pages.items():
        path.write_text(written(page, said), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
