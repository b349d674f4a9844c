"""The HTTP side of the API server double: caller, request, and the answer in the requested format."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from kube.calls import Access
from sandbox.api import discovery, operations, patching, requests
from sandbox.api.admission import Admission
from sandbox.api.defaults import fresh
from sandbox.api.discovery import table
from sandbox.api.errors import StatusError, internal
from sandbox.api.registry import Registry, WriteCall
from sandbox.api.requests import Route, Target
from sandbox.api.resources import Catalogue
from sandbox.api.store import Store, Stored, list_item, shown, shown_raw
from sandbox.api.users import ADMINS, Authorizer, Recorder, Tokens, User
from sandbox.api.watching import Stream, read_wish
from sandbox.api.webhooks import Caller

Json = dict[str, Any]

# The API server's limit on a request's body (measured: 3.2 MB is refused, 2.9 MB is not).
_MAX_BODY_BYTES: Final = 3 * 2**20
# Longer warnings are cut (measured).
_MAX_WARNING_CHARACTERS: Final = 256
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/livez"})
_log = structlog.get_logger()
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class ApiServer:
    """A double of a Kubernetes API server as clients see it, kept in memory.

    Attributes:
        store: the objects.
        tokens: the callers.
        recorder: the requests of each caller.
        authorizer: RBAC; enforced for every request only with *enforces_rbac*.
        caller: calls webhooks.
        pages: additional documents, by path, for callers with a token (the kubelets' records).
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        enforces_rbac: bool = False,
        bookmark_s: float = 60.0,
        events_kept: int = 20_000,
    ) -> None:
        self.store = Store(events_kept=events_kept)
        self.tokens = Tokens(clock=lambda: clock().timestamp())
        self.recorder = Recorder()
        self.authorizer = Authorizer(self.store)
        self.catalogue = Catalogue()
        self._clock = clock
        self.caller = Caller(self._service)
        self.registry = Registry(self.store, self.catalogue, Admission(self.store, self.caller, self.authorizer), clock)
        self._enforces_rbac = enforces_rbac
        self._bookmark_s = bookmark_s
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, tls: ssl.SSLContext) -> int:
        """Serve on a free port of *host*, which is returned.

        Raises:
            OSError: the address is unavailable.
        """
        await self.caller.open()
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, keepalive_timeout=120, shutdown_timeout=1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, 0, ssl_context=tls)
        try:
            await site.start()
        except OSError:
            await self.stop()
            raise
        taken: int = self._runner.addresses[0][1]
        return taken

    async def stop(self) -> None:
        """End every watch and close."""
        self.store.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.caller.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except StatusError as e:
            if e.code == 404 and not e.reason:
                return web.Response(text=e.message, status=404)
            return web.Response(
                body=msgspec.json.encode(e.status()), status=e.code, headers=e.headers, content_type="application/json"
            )
        except web.HTTPException as e:
            if e.status != 413:
                raise
            e413 = StatusError(413, "RequestEntityTooLarge", f"limit is {_MAX_BODY_BYTES}")
            return _json(e413.status(), 413)
        except ConnectionError:
            raise
        # The outermost frame: an unexpected request is also answered, and logged.
        except Exception:  # noqa: BLE001
            _log.exception("request failed", method=request.method, path=request.path)
            return _json(internal(f"the sandbox has no rule for this {request.method} of {request.path}").status(), 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in _OPEN_PATHS:
            return web.Response(text="ok")
        user = self._authenticate(request)
        if path == discovery.OPENAPI_V2 and discovery.OPENAPI_V2_WANTED in request.headers.get("Accept", ""):
            return web.Response(body=discovery.openapi_v2_protobuf(), content_type=discovery.OPENAPI_V2_SENT)
        if (document := discovery.answer(path, self.catalogue)) is not None:
            return _json(document)
        route = requests.find(request.method, path, request.query, self.catalogue)
        self._authorize(user, route.action)
        if route.verb == "watch":
            return await self._watch(request, route)
        if route.verb in ("list", "get"):
            return self._read(request, route)
        limit = request.query.get("timeout")
        try:
            async with asyncio.timeout(requests.duration_s(limit) if limit else None):
                return await self._write(request, route, user)
        except TimeoutError as e:
            message = "Timeout: request did not complete within requested timeout - context deadline exceeded"
            raise StatusError(504, "Timeout", message) from e

    def _authenticate(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        found = self.tokens.look_up(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        name = request.headers.get("Impersonate-User")
        if name is None:
            return found.user
        if ADMINS not in found.user.groups:
            raise StatusError(403, "Forbidden", f'users "{name}" is forbidden: only administrators impersonate here')
        return User(name=name, groups=tuple(request.headers.getall("Impersonate-Group", ())))

    def _authorize(self, user: User, action: Access) -> None:
        self.recorder.note(user, action)
        if not self._enforces_rbac or self.authorizer.allows(user, action):
            return
        where = f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
        full = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
        message = f'User "{user.name}" cannot {action.verb} resource "{full}" in API group "{action.group}"{where}'
        title = f"{action.resource}.{action.group}" if action.group else action.resource
        named = f' "{action.name}"' if action.name else ""
        raise StatusError(403, "Forbidden", f"{title}{named} is forbidden: {message}")

    def _read(self, request: web.Request, route: Route) -> web.Response:
        query, target = request.query, route.target
        self.store.check_reached(requests.whole_number(query, "resourceVersion"))
        accept = request.headers.get("Accept", "")
        if route.verb == "get":
            stored = self.registry.fetch(target)
            return _raw(self._encoder(target, accept, query)(stored))
        limit = 0 if query.get("resourceVersion") == "0" else requests.whole_number(query, "limit")
        selected = route.selection
        page = self.store.page(target.kind.resource, selected, limit, query.get("continue", ""))
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.token:
            metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
            if not selected.everything:
                del metadata["remainingItemCount"]
        kind = target.kind
        if "as=Table" in accept:
            objects = [shown(kind, stored.obj) for stored in page.items]
            include = query.get("includeObject", "Metadata")
            return _json(table(kind, objects, self._clock(), metadata=metadata, include=include))
        head = msgspec.json.encode({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata})
        items = [list_item(kind, stored) for stored in page.items]
        return _raw(head[:-1] + b',"items":[' + b",".join(items) + b"]}")

    async def _watch(self, request: web.Request, route: Route) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        wish = read_wish(request.query, route.selection)
        encode = self._encoder(route.target, accept, request.query)
        if wish.since is not None and wish.initial:
            self.store.check_reached(wish.since)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        stream = Stream(self.store, route.target.kind, wish, encode, self._bookmark_s).chunks()
        try:
            async for chunk in stream:
                await response.write(chunk)
        except ConnectionError:
            return response
        finally:
            await stream.aclose()
        await response.write_eof()
        return response

    def _encoder(self, target: Target, accept: str, query: Mapping[str, str]) -> Callable[[Stored], bytes]:
        kind = target.kind
        if "as=Table" in accept:
            include = query.get("includeObject", "Metadata")

            def rows(stored: Stored) -> bytes:
                metadata = {"resourceVersion": stored.obj["metadata"]["resourceVersion"]}
                objects = (shown(kind, stored.obj),)
                return msgspec.json.encode(table(kind, objects, self._clock(), metadata=metadata, include=include))

            return rows
        return lambda stored: shown_raw(kind, stored)

    async def _write(self, request: web.Request, route: Route, user: User) -> web.Response:
        query, target = request.query, route.target
        raw = await request.read()
        content_type = request.headers.get("Content-Type", "application/json")
        call = WriteCall(user=user, dry_run=_dry_run(query), field_validation=query.get("fieldValidation", ""))
        call.options = _shown_options(query, dry_run=call.dry_run)
        status = 200
        match route.verb:
            case "create":
                answer, status = await self._create(target, patching.decode_object(raw, content_type), call), 201
            case "update":
                body = patching.decode_object(raw, content_type)
                answer = await self.registry.update(target, lambda _: fresh(body), call, replaces=True)
            case "patch":
                answer, status = await self._patch(target, content_type, raw, call, query)
            case _:
                options = operations.read_delete_options(_options(raw, content_type, call), query)
                answer, gone = await self.registry.delete(target, options, call)
                if gone and target.kind.resource != "pods":
                    answer = _deleted(target, answer)
        response = _json(answer, status)
        for warning in dict.fromkeys(call.warnings):
            # Measured: a warning that is invalid in a header is omitted.
            if _CONTROL.search(warning):
                continue
            quoted = warning[:_MAX_WARNING_CHARACTERS].replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    async def _create(self, target: Target, body: Json, call: WriteCall) -> Json:
        kind = target.kind
        match target.subresource:
            case "binding":
                return await operations.bind(self.registry, target, body, call)
            case "eviction":
                return await operations.evict(self.registry, target, body, call)
            case "token":
                return operations.request_token(self.registry, self.tokens, target, body)
            case "":
                pass
            case other:
                raise StatusError(405, "MethodNotAllowed", f"{kind.plural}/{other} cannot be created")
        if kind.plural == "bindings":
            return await operations.bind(self.registry, target, body, call)
        if kind.virtual:
            return operations.answer(kind.plural, body, call.user, self.tokens, self.authorizer)
        return await self.registry.create(target, body, call)

    async def _patch(
        self, target: Target, content_type: str, raw: bytes, call: WriteCall, query: Mapping[str, str]
    ) -> tuple[Json, int]:
        transform = patching.transformation(target.kind, content_type, raw)
        applied = content_type.startswith("application/apply-patch")
        if applied and not query.get("fieldManager"):
            message = (
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
            raise StatusError(422, "Invalid", message)
        found = self.store.get(target.kind.resource, target.namespace, target.name)
        if applied and found is None and not target.subresource:
            # Source: apiserver/pkg/endpoints/handlers/patch.go, withAuthorization: with the name, unlike a POST.
            self._authorize(call.user, Route(verb="create", target=target).action)
            return await self.registry.create(target, transform({}), call), 201
        return await self.registry.update(target, transform, call), 200

    def _service(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        stored = self.store.get("services", namespace, name)
        return None if stored is None else stored.obj


def _options(raw: bytes, content_type: str, call: WriteCall) -> Json:
    body = patching.decode_object(raw, content_type)
    call.dry_run = call.dry_run or "All" in (body.get("dryRun") or ())
    call.options = {**call.options, **{key: value for key, value in body.items() if key not in ("kind", "apiVersion")}}
    return body


def _shown_options(query: Mapping[str, str], *, dry_run: bool) -> Json:
    shown_options: Json = {key: query[key] for key in ("fieldManager", "fieldValidation") if query.get(key)}
    return {"dryRun": ["All"], **shown_options} if dry_run else shown_options


def _dry_run(query: Mapping[str, str]) -> bool:
    value = query.get("dryRun")
    if value not in (None, "", "All"):
        message = f'dryRun: Unsupported value: ["{value}"]: supported values: "All"'
        raise StatusError(422, "Invalid", message)
    return value == "All"


def _deleted(target: Target, obj: Mapping[str, Any]) -> Json:
    details = {"name": target.name, "kind": target.kind.plural, "uid": obj["metadata"]["uid"]}
    if target.kind.group:
        details["group"] = target.kind.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _json(document: Mapping[str, Any], status: int = 200) -> web.Response:
    return _raw(msgspec.json.encode(document), status)


def _raw(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
