"""Answers reviews of the ConfigMaps that hold configuration, and judges each as its reader would."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from core.admission.configuration import InForce, judge_edit
from core.admission.verdict import NOTHING, Verdict
from core.catalog import Catalog
from core.errors import InvalidRequestError
from core.wire.reviewed_config_maps import decode_config_map_edit
from core.wire.reviews import Kind, Operation, Review, UnreadableObjectError, admit, decode_review, deny, encode_answer
from runtime.configuration import ActiveConfiguration
from webhook.metrics import Metrics

_log: Final = structlog.get_logger()

PATH: Final = "/configuration"
_CONFIG_MAP: Final = Kind(version="v1", kind="ConfigMap")
_JUDGED: Final = (Operation.CREATE, Operation.UPDATE)
_UNJUDGED: Final = "cardshare did not check this in time and admits it; see event ConfigurationRefused"


class Edits:
    """Judges edits of ConfigMaps, one at a time, in a thread of its own.

    A ConfigMap may hold 1 MiB of YAML, and its author must not be able to delay the reviews of pods.
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
        now = InForce(parts=self._active.parts, settings=self._active.settings, trusted=self._trusted)
        judging = asyncio.get_running_loop().run_in_executor(self._one, self._verdict, review, body, now)
        try:
            async with asyncio.timeout(deadline_s):
                verdict = await judging
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
            self._tell(review, verdict)
        self._metrics.reviews[PATH, review.operation, word] += 1
        self._metrics.seconds.observe(time.perf_counter() - began)
        return encode_answer(review.uid, reply)

    def _verdict(self, review: Review, body: bytes | bytearray, now: InForce) -> Verdict:
        if review.kind != _CONFIG_MAP or review.operation not in _JUDGED:
            return NOTHING
        try:
            new, old = decode_config_map_edit(body)
        except InvalidRequestError:
            # The API server rejects an object that is not a ConfigMap.
            return NOTHING
        return NOTHING if new is None else judge_edit(review.namespace, new, old, now, self._catalog)

    def _tell(self, review: Review, verdict: Verdict) -> None:
        self._metrics.codes.update(verdict.codes)
        if not verdict.allowed:
            _log.info(
                "review denied",
                config_map=f"{review.namespace}/{review.name}",
                user=review.user_name[:128],
                operation=review.operation.value,
                codes=",".join(verdict.codes),
                review_uid=review.uid,
            )
