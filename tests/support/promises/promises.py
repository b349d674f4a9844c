"""What an API server promises, as checks that any server can be put to: one function per promise.

A check does something to a server and returns what it answered as rows: plain data, in which everything that is
different at every run (ids, times, versions, the namespace) has a fixed word. So the rows of two servers can be
compared, and those of the real one kept in `tests/data/promises.json`, beside which the sandbox's server is tested
where no real one is. `python -m tests.support.promises.promises_compare --write` writes that file anew.

The checks themselves are in `promises_binding`, `promises_writing`, `promises_quantities`, `promises_life`,
`promises_reading`, `promises_webhooks` and `promises_conditions`. What kubectl makes of the answers is in
integration/test_kubectl, which is played on both servers.
"""

import json
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.support.servers.rest import Answer, Rest, connect

KEPT: Final = Path(__file__).parents[2] / "data" / "promises.json"
_MODULES: Final = (
    "binding",
    "writing",
    "quantities",
    "life",
    "reading",
    "webhooks",
    "conditions",
)

Rows = list[Any]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One API server, and how to be its administrator.

    forget makes it drop the history of all objects, as a compaction does; None = it cannot be made to.
    """

    url: str
    ca_file: Path
    token: str
    forget: Callable[[], Awaitable[object]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a check works with: the server, a namespace of its own, a folder for files."""

    server: Server
    rest: Rest
    namespace: str
    folder: Path

    @property
    def core(self) -> str:
        """The path of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def pods(self) -> str:
        """The path of the namespace's pods."""
        return f"{self.core}/pods"

    async def pod(self, name: str, spec: Json | None = None, **metadata: Any) -> Json:
        """Create a pod and return it."""
        made: Json = await self.rest.made(self.pods, pod(name, spec, **metadata))
        return made

    async def bind(self, name: str, node: str = "n1", query: str = "", **metadata: Any) -> Answer:
        """Post a Binding of *name* to *node*."""
        body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
        return await self.rest.post(f"{self.pods}/{name}/binding{query}", body)


Check = Callable[[World], Awaitable[Rows]]
PROMISES: Final[dict[str, Check]] = {}


def promise(check: Check) -> Check:
    """Enter *check* under its name."""
    PROMISES[check.__name__] = check
    return check


def pod(name: str, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Json:
    """A pod of one container; *spec* is added to its spec."""
    container = {"name": "c", "image": "example.test/none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], **(spec or {})},
    }


def said(answer: Answer) -> list[Any]:
    """An answer in short: status, and of a refusal its reason and text."""
    if answer.status < 400:
        return [answer.status]
    body = answer.body if isinstance(answer.body, dict) else {"message": answer.body}
    return [answer.status, body.get("reason", ""), body.get("message", "")]


def refused_fields(answer: Answer) -> list[Any]:
    """Of a refusal by validation: status, reason, and which fields are wrong; the words may differ."""
    if answer.status < 400:
        return [answer.status]
    causes = (answer.body.get("details") or {}).get("causes") or ()
    return [answer.status, answer.body.get("reason", ""), sorted({cause.get("field", "") for cause in causes})]


_VARYING: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"(ResourceVersion in (?:precondition|object meta): )\d+"), r"\1N"),
    (re.compile(r"(ersion: )\d+"), r"\1N"),
    (re.compile(r"(in record )\(\d+\)"), r"\1(N)"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
)


def normalised(rows: Any, world: World) -> Any:
    """*rows* with a fixed word for everything that differs at every run."""
    if isinstance(rows, Mapping):
        return {normalised(key, world): normalised(value, world) for key, value in rows.items()}
    if isinstance(rows, list | tuple):
        return [normalised(one, world) for one in rows]
    if not isinstance(rows, str):
        return rows
    text = rows.replace(world.namespace, "NAMESPACE")
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


@asynccontextmanager
async def world_of(server: Server) -> AsyncIterator[World]:
    """A namespace on *server*, gone afterwards with its pods."""
    name = f"promise-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory(prefix="promises-") as folder:
        async with connect(server.url, server.ca_file, server.token) as rest:
            await rest.made("/api/v1/namespaces", {"metadata": {"name": name}})
            yield World(server=server, rest=rest, namespace=name, folder=Path(folder))
        async with connect(server.url, server.ca_file, server.token) as rest:
            await rest.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
            await rest.delete(f"/api/v1/namespaces/{name}")


async def kept_by(server: Server, name: str) -> Any:
    """The rows of the promise *name* on *server*."""
    async with world_of(server) as world:
        rows = normalised(await PROMISES[name](world), world)
    # What JSON cannot tell apart is no difference.
    return json.loads(json.dumps(rows))


def load() -> Mapping[str, Check]:
    """All promises by their names."""
    for name in _MODULES:
        import_module(f"tests.support.promises.promises_{name}")
    return dict(sorted(PROMISES.items()))


def kept() -> Mapping[str, Any]:
    """What the real server answered when the file was written."""
    found: Mapping[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def text_of(answers: Mapping[str, Any]) -> str:
    """Answers as the file holds them: one row a line."""
    parts = []
    for name, rows in sorted(answers.items()):
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False, sort_keys=True)}" for row in rows)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"
