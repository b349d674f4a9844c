"""A webhook server for promises: serves acts by their paths, keeps what it was asked, and is put in force."""

import asyncio
import base64
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from certs.authority import Authority, issue, new_authority
from tests.support.promises.promises import Json, World, pod
from tests.support.servers.rest import eventually

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
ACT: Final = "promise/act"
POLICY: Final = "promise/policy"

Respond = Callable[[Json], Json | web.Response]


def answer_of(review: Json, *, allowed: bool = True, patch: list[Json] | None = None, **more: Any) -> Json:
    response: Json = {"uid": review["request"]["uid"], "allowed": allowed, **more}
    if patch is not None:
        response |= {"patch": base64.b64encode(json.dumps(patch).encode()).decode(), "patchType": "JSONPatch"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def add(path: str, value: object) -> Json:
    return {"op": "add", "path": path, "value": value}


class Hook:
    """A webhook server on loopback: the path of a call names the act that answers it; keeps what it was asked."""

    def __init__(self, acts: Mapping[str, Respond]) -> None:
        self.acts = acts
        self.reviews: list[tuple[str, Json, web.BaseRequest]] = []
        self.port = 0
        self.authority: Authority = new_authority("hook", 2, datetime.now(UTC))

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        act = request.path.removeprefix("/")
        self.reviews.append((act, review["request"], request))
        if act == "slow":
            # Until its caller has had enough.
            while request.transport is not None:  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0.02)
        found = self.acts[act](review)
        return found if isinstance(found, web.Response) else web.json_response(found)

    def entry(self, name: str, act: str, world: World, **changes: Any) -> Json:
        return {
            "name": f"{name}.example.test",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.port}/{act}",
                "caBundle": base64.b64encode(self.authority.cert_pem).decode(),
            },
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
            **changes,
        }


@asynccontextmanager
async def serving(world: World, acts: Mapping[str, Respond], *names: str) -> AsyncIterator[Hook]:
    """A webhook server, on loopback and under *names*, that does *acts*."""
    hook = Hook({"probe": lambda review: answer_of(review, warnings=["probed"]), **acts})
    leaf = issue(hook.authority, names, ("127.0.0.1",), 2, datetime.now(UTC))
    cert, key = world.folder / "hook.crt", world.folder / "hook.key"
    cert.write_bytes(leaf.cert_pem)
    key.write_bytes(leaf.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    # A request that nobody waits for any more is dropped, so that the slow act ends with its caller.
    runner = web.ServerRunner(web.Server(hook.handle), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    hook.port = runner.addresses[0][1]
    try:
        yield hook
    finally:
        await runner.cleanup()


@asynccontextmanager
async def registered(world: World, hook: Hook, entries: list[Json], kind: str = "mutating") -> AsyncIterator[None]:
    """The entries in force: a real server learns of them by a watch of its own."""
    path = CONFIGURATIONS.format(kind)
    name = f"hooks-{secrets.token_hex(4)}"
    probe = hook.entry("probe", "probe", world, objectSelector={"matchLabels": {ACT: "probe"}})
    await world.rest.made(path, {"metadata": {"name": name}, "webhooks": [*entries, probe]})
    try:
        probing = pod("probe", labels={ACT: "probe"})

        async def ask() -> Any:
            return await world.rest.post(f"{world.pods}?dryRun=All", probing)

        await eventually(ask, lambda _: any(act == "probe" for act, _, _ in hook.reviews))
        hook.reviews.clear()
        yield
    finally:
        await world.rest.delete(f"{path}/{name}")
