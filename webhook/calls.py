"""Answers calls on the TLS port: reviews of pods, and of the ConfigMaps that hold configuration."""

import asyncio
import re
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import structlog

from core.admission.configuration import InForce, judge_edit
from core.admission.verdict import NOTHING, Verdict
from core.catalog import Catalog
from core.errors import InvalidRequestError
from core.wire.config_maps import decode_config_map_edit
from core.wire.reviews import (
    ObjectKind,
    Operation,
    Review,
    UnreadableObjectError,
    admit,
    decode_review,
    deny,
    encode_answer,
)
from runtime.calls import JSON, Call, RefusedCallError, Reply
from runtime.configuration import ActiveConfiguration
from runtime.connection import LARGE_AT_A_TIME, LARGE_BYTES
from runtime.serving import BODY_S
from webhook.metrics import Metrics
from webhook.reviews import Path, Reviewer, tell

# Share of the caller's timeout. The rest leaves time for the answer to travel back.
_DEADLINE_SHARE: Final = 0.8
_DEFAULT_TIMEOUT_S: Final = 10.0
_DURATION: Final = re.compile(rb"(?:^|&)timeout=([0-9]{1,6}(?:\.[0-9]{1,9})?)(ms|s|m)(?:&|$)")
_UNITS: Final = {b"ms": 0.001, b"s": 1.0, b"m": 60.0}
_JSON: Final = JSON.encode()
_log: Final = structlog.get_logger()

PATH: Final = "/configuration"
_CONFIG_MAP: Final = ObjectKind(version="v1", kind="ConfigMap")
_JUDGED: Final = (Operation.CREATE, Operation.UPDATE)
# How many wait beside the one that is judged. The port can then still read a large review of a pod.
_MOST_LARGE: Final = LARGE_AT_A_TIME - 2
_UNJUDGED: Final = "cardshare did not check this in time and admits it; see event ConfigurationRefused"


class Edits:
    """Judges edits of ConfigMaps as their reader would, one at a time, in a thread of its own.

    A ConfigMap may hold 1 MiB of YAML, and its author must not be able to delay the reviews of pods. While several
    large edits wait, the next large one is admitted unjudged.
    """

    def __init__(
        self, active: ActiveConfiguration, catalog: Catalog, trusted: frozenset[str], metrics: Metrics
    ) -> None:
        """Judge edits against the *active* configuration; *trusted*: third-party namespaces whose ConfigMaps count."""
        self._active = active
        self._catalog = catalog
        self._trusted = trusted
        self._metrics = metrics
        self._one = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edits")
        # Held until the thread is done, also with a late edit. The next one waits here and not in the thread's queue,
        # from which a late one would not go.
        self._turn = asyncio.Lock()
        self._large = 0

    async def answer(self, body: bytes | bytearray, deadline_s: float) -> bytes:
        """Return the answer to the review in *body*; admit if there is no verdict within *deadline_s*.

        Raises:
            InvalidRequestError: *body* is not a review, so there is no uid to answer.
        """
        began = time.perf_counter()
        try:
            review = decode_review(body)
        except UnreadableObjectError as e:
            # The object is not a ConfigMap.
            return encode_answer(e.uid, admit())
        active = self._active
        now = InForce(parts=active.parts, sections=active.sections, settings=active.settings, trusted=self._trusted)
        try:
            async with asyncio.timeout(deadline_s):
                verdict = await self._judge(review, body, now)
        except TimeoutError:
            word, reply = "late", admit(warnings=[_UNJUDGED])
        except Exception:  # noqa: BLE001 (the last frame that knows the uid to answer to)
            _log.exception("review failed", review_uid=review.uid, config_map=f"{review.namespace}/{review.name}")
            self._metrics.failures += 1
            word, reply = "failed", admit(warnings=["cardshare failed to check this object and admitted it"])
        else:
            told = [str(one) for one in verdict.warnings]
            word = "allowed" if verdict.allowed else "denied"
            reply = admit(warnings=told) if verdict.allowed else deny(verdict.message)
            tell(review, verdict, self._metrics, "config_map")
        self._metrics.reviews[PATH, review.operation, word] += 1
        self._metrics.seconds.observe(time.perf_counter() - began)
        return encode_answer(review.uid, reply)

    async def _judge(self, review: Review, body: bytes | bytearray, now: InForce) -> Verdict:
        is_large = len(body) > LARGE_BYTES
        if is_large and self._large >= _MOST_LARGE:
            raise TimeoutError
        self._large += is_large
        try:
            await self._turn.acquire()
        finally:
            self._large -= is_large
        judging = asyncio.get_running_loop().run_in_executor(self._one, self._verdict, review, body, now)
        judging.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(judging)

    def _verdict(self, review: Review, body: bytes | bytearray, now: InForce) -> Verdict:
        if review.kind != _CONFIG_MAP or review.operation not in _JUDGED:
            return NOTHING
        try:
            new, old = decode_config_map_edit(body)
        except InvalidRequestError:
            # The API server rejects an object that is not a ConfigMap.
            return NOTHING
        return NOTHING if new is None else judge_edit(review.namespace, new, old, now, self._catalog)


class Previews(Protocol):
    """Adds a placement preview to the answers of dry runs."""

    def is_wanted(self, body: bytes | bytearray) -> bool:
        """Return whether *body* may be a dry run that needs a preview; cheap."""
        ...

    async def completed(self, body: bytes | bytearray, answer: bytes, deadline_s: float) -> bytes:
        """Return *answer* with the preview as a warning, or unchanged if there is no preview in time."""
        ...


class ReviewCalls:
    """Answers calls with a reviewer, with `Edits` for ConfigMaps of the configuration, and with *previews* if given."""

    def __init__(self, reviewer: Reviewer, configuration: Edits, previews: Previews | None = None) -> None:
        self._reviewer = reviewer
        self._configuration = configuration
        self._previews = previews
        self._paths = {path.value: path for path in Path}

    def answer(self, call: Call) -> Reply | Awaitable[Reply]:
        """See `runtime.calls.Answer`."""
        path = self._paths.get(call.path)
        if path is None and call.path != PATH:
            raise RefusedCallError(404, "not found; send reviews to /mutate, /validate and /configuration")
        if call.method != "POST":
            raise RefusedCallError(405, "send reviews by POST", allow="POST")
        content_type = call.header(b"content-type") or b""
        if content_type != _JSON and content_type.partition(b";")[0].strip().lower() != _JSON:
            raise RefusedCallError(415, f"send {JSON}")
        if call.header(b"content-encoding") is not None:
            raise RefusedCallError(415, "send the review uncompressed")
        if path is None:
            return self._edited(call)
        try:
            found = self._reviewer.answer(path, call.body)
        except InvalidRequestError as e:
            raise RefusedCallError(400, str(e)) from e
        previews = self._previews
        if previews is not None and path is Path.VALIDATE and previews.is_wanted(call.body):
            return _completed(previews, call, found)
        return Reply(found)

    async def _edited(self, call: Call) -> Reply:
        try:
            return Reply(await self._configuration.answer(call.body, deadline_s(call.query)))
        except InvalidRequestError as e:
            raise RefusedCallError(400, str(e)) from e


async def _completed(previews: Previews, call: Call, answer: bytes) -> Reply:
    return Reply(await previews.completed(call.body, answer, deadline_s(call.query)))


def deadline_s(query: bytes) -> float:
    """Return how long the caller's ``timeout`` leaves for the answer; the caller's clock started earlier.

    Source: Kubernetes, dynamic admission control: the API server adds ``?timeout=10s`` to the URL of a call.
    """
    found = _DURATION.search(query)
    given = float(found[1]) * _UNITS[found[2]] if found else _DEFAULT_TIMEOUT_S
    return max(0.01, given * _DEADLINE_SHARE)


def body_deadline_s(query: bytes) -> float:
    """Return the time limit for the arrival of a body."""
    return min(BODY_S, deadline_s(query))
