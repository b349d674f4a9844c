"""Calls one admission webhook over TLS, and reads its answer as strictly as the API server does.

`admission` selects and orders webhooks. `met` judges their match conditions, CEL expressions that exclude irrelevant
reviews.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import aiohttp
import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from sandbox.client import sendable

Json = dict[str, Any]

_MAX_ANSWER_BYTES: Final = 16 * 2**20
# The number of retries after 429 or 5xx with Retry-After (client-go, rest/with_retry.go).
_RETRIES: Final = 10
_DECODER: Final = msgspec.json.Decoder()
_VARIABLES: Final = ("object", "oldObject", "request")
# Returns whether the service account with namespace and name may use a verb on a resource of a group.
Allows = Callable[[Mapping[str, str]], bool]
_allows: ContextVar[Allows] = ContextVar("allows")


class CallError(Exception):
    """The webhook could not be called or gave no valid answer; `failurePolicy` decides what follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAnswer:
    """A webhook's well-formed answer; *patch* is the decoded JSON text of the operations, b"" if none."""

    allowed: bool
    patch: bytes = b""
    warnings: tuple[str, ...] = ()
    status: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """The address of a webhook: its URL, and the name in its certificate if that differs."""

    url: str
    server_name: str | None = None


class Caller:
    """Keeps the connections to webhooks; an async context manager.

    Attributes:
        show_client: adds a client certificate to a context, like the kubeconfig of an AdmissionConfiguration; None =
            there is none.
    """

    def __init__(self, find_service: Callable[[str, str], Mapping[str, Any] | None]) -> None:
        self.show_client: Callable[[ssl.SSLContext], None] | None = None
        self._find_service = find_service
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._opened: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Prepare for calls; inside the event loop."""
        self._opened = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90),
            headers={"User-Agent": "kube-apiserver-admission", "Accept": "application/json"},
        )

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def call(self, webhook: Mapping[str, Any], review: Json) -> WebhookAnswer:
        """Send *review* and read the answer within the webhook's own ``timeoutSeconds``.

        Raises:
            CallError: no connection, timeout, or an invalid answer.
        """
        timeout_s = int(webhook.get("timeoutSeconds") or 10)
        config = webhook["clientConfig"]
        target = self._target(config)
        context = self._context(str(config.get("caBundle") or ""))
        url, text = f"{target.url}?timeout={timeout_s}s", msgspec.json.encode(review)
        try:
            async with asyncio.timeout(timeout_s):
                status, body = await self._answered(url, text, ssl=context, server_hostname=target.server_name)
        except TimeoutError as e:
            raise CallError(f'Post "{url}": context deadline exceeded') from e
        except (aiohttp.ClientError, OSError) as e:
            raise CallError(f'Post "{url}": {e}') from e
        if status != 200:
            raise CallError(f"the server rejected our request for an unknown reason: {status}")
        return _read(body, review["request"]["uid"])

    async def _answered(self, url: str, text: bytes, **tls: Any) -> tuple[int, bytes]:
        """Return the status and body of the answer, after all retries that the webhook requests."""
        if self._opened is None:
            raise RuntimeError("the caller of webhooks was not opened")
        tries = 0
        while True:
            async with self._opened.post(
                url,
                data=sendable(text),
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=None),
                allow_redirects=False,
                **tls,
            ) as response:
                body = await response.content.read(_MAX_ANSWER_BYTES)
                while not response.content.at_eof() and len(body) < _MAX_ANSWER_BYTES:
                    body += await response.content.read(_MAX_ANSWER_BYTES)
            wait_s = response.headers.get("Retry-After", "")
            waits = (response.status == 429 or response.status >= 500) and wait_s.isascii() and wait_s.isdecimal()
            if not waits or tries == _RETRIES:
                return response.status, body
            tries += 1
            await asyncio.sleep(int(wait_s))

    def _target(self, config: Mapping[str, Any]) -> WebhookTarget:
        if config.get("url"):
            return WebhookTarget(url=str(config["url"]))
        service = config["service"]
        namespace, name = service["namespace"], service["name"]
        path = "/" + str(service.get("path") or "").lstrip("/")
        found = self._find_service(namespace, name)
        if found is None:
            raise CallError(f'service "{name}" not found')
        spec = found.get("spec") or {}
        # No proxy routes cluster addresses here.
        if spec.get("type") != "ExternalName":
            raise CallError(f'no endpoints available for service "{name}"')
        address = f"{spec['externalName']}:{_target_port(spec, int(service.get('port') or 443))}"
        return WebhookTarget(url=f"https://{address}{path}", server_name=f"{name}.{namespace}.svc")

    def _context(self, bundle: str) -> ssl.SSLContext:
        found = self._contexts.get(bundle)
        if found is None:
            try:
                found = ssl.create_default_context(
                    cadata=base64.b64decode(bundle, validate=True).decode("ascii") if bundle else None
                )
            except (binascii.Error, ValueError, ssl.SSLError) as e:
                raise CallError(f"unable to load root certificates: {e}") from e
            if self.show_client is not None:
                self.show_client(found)
            self._contexts[bundle] = found
        return found


def _target_port(spec: Mapping[str, Any], port: int) -> int:
    for entry in spec.get("ports") or ():
        if entry.get("port") == port and isinstance(entry.get("targetPort"), int):
            return int(entry["targetPort"])
    return port


def _read(body: bytes, uid: str) -> WebhookAnswer:
    try:
        review = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise CallError(f"couldn't decode the answer: {e}") from e
    if not isinstance(review, dict):
        raise CallError("the answer is no object")
    said = f"{review.get('apiVersion')}, Kind={review.get('kind')}"
    if said != "admission.k8s.io/v1, Kind=AdmissionReview":
        raise CallError(f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {said}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise CallError("webhook response was absent")
    if response.get("uid") != uid:
        raise CallError(f'expected response.uid="{uid}", got "{response.get("uid")}"')
    return WebhookAnswer(
        allowed=response.get("allowed") is True,
        patch=_patch(response),
        warnings=tuple(str(warning) for warning in response.get("warnings") or ()),
        status=response.get("status"),
    )


def _patch(response: Mapping[str, Any]) -> bytes:
    text, kind = response.get("patch"), response.get("patchType")
    if not text:
        if kind:
            raise CallError("webhook returned response.patchType but not response.patch")
        return b""
    if kind != "JSONPatch":
        raise CallError(f'webhook returned invalid response.patchType of "{kind or ""}"')
    try:
        patch = base64.b64decode(text, validate=True)
        operations = _DECODER.decode(patch)
    except (binascii.Error, ValueError, TypeError) as e:
        raise CallError(f"couldn't decode the patch: {e}") from e
    if not isinstance(operations, list):
        raise CallError("couldn't decode the patch: it is no list")
    return patch


def nobody(asked: Mapping[str, str]) -> bool:
    """Deny everything."""
    del asked
    return False


class ConditionError(Exception):
    """A condition could not be evaluated, and no other one is false; `failurePolicy` decides what follows."""


def met(conditions: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], allows: Allows = nobody) -> bool:
    """Return whether all conditions are true; a false one decides, even if others fail.

    It differs from the real server in two ways. The fields of ``request`` have no types here, so an expression that
    misuses one is registered, and fails at its evaluation. Of Kubernetes' own functions, only those exist that ask the
    authorizer about a service account and a resource; an expression with another one is rejected at its registration.

    *allows* replaces the authorizer.

    Raises:
        ConditionError: none is false, and some could not be evaluated; or one is no boolean expression.
    """
    if not conditions:
        return True
    _allows.set(allows)
    activation = _environment().Activation({"authorizer": {}, **{name: variables[name] for name in _VARIABLES}})
    failures = []
    for condition in conditions:
        found = _compiled(condition["expression"]).eval(activation)
        if found.type() != cel.Type.BOOL:
            failures.append(f"condition {condition['name']}: {found.value()}")
        elif not found.value():
            return False
    if failures:
        raise ConditionError(", ".join(failures))
    return True


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    try:
        found = _environment().compile(text)
    except RuntimeError as e:
        raise ConditionError(f"{text}: compilation failed: {e}") from e
    if found.return_type() != cel.Type.BOOL:
        raise ConditionError(f"{text}: must evaluate to bool")
    return found


@lru_cache(maxsize=1)
def _environment() -> Any:
    text, asked = cel.Type.STRING, cel.Type.MAP
    account = cel.Overload("account", asked, [asked, text, text], is_member=True, impl=_account)
    told = [
        cel.FunctionDecl(name, [cel.Overload(f"{name}_of", asked, [asked, text], is_member=True, impl=_telling(name))])
        for name in ("group", "resource", "subresource", "check")
    ]
    allowed = cel.Overload("allowed", cel.Type.BOOL, [asked], is_member=True, impl=_allowed)
    return cel.NewEnv(
        variables={"authorizer": asked, **dict.fromkeys(_VARIABLES, cel.Type.DYN)},
        functions=[cel.FunctionDecl("serviceAccount", [account]), *told, cel.FunctionDecl("allowed", [allowed])],
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )


def _account(_: Any, namespace: str, name: str) -> dict[str, str]:
    return {"namespace": namespace, "name": name}


def _telling(what: str) -> Callable[[Any, str], dict[str, str]]:
    return lambda asked, word: {**dict(asked), what: word}


def _allowed(asked: Any) -> bool:
    return _allows.get()(dict(asked))
