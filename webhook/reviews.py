"""Answers one review: applies the core's verdict, counts it, and logs a denial."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from core.admission import budgets
from core.admission.fingerprint import fingerprint, values_read
from core.admission.mutate import mutate, unreadable, validate
from core.admission.rulebook import Rulebook
from core.admission.templates import judge_workload
from core.admission.verdict import NOTHING, Verdict
from core.errors import InvalidRequestError
from core.inventory import Stock
from core.warnings import AdmissionWarning
from core.wire.policies import ResourceQuota
from core.wire.reviewed_pods import PodObject, is_made, maker_of, pod_of
from core.wire.reviews import Review, ReviewReply, UnreadableObjectError, admit, decode_review, deny, encode_answer
from core.wire.templates import decode_workload
from webhook.metrics import Metrics

_log: Final = structlog.get_logger()


class Path(StrEnum):
    """The two kinds of review: change the object, or judge its final state."""

    MUTATE = "/mutate"
    VALIDATE = "/validate"


# The limit is in bytes of reviews: some thousand workloads, or a few that were written to fill it.
_MAX_REMEMBERED_BYTES: Final = 16 * 2**20
_MAX_REVIEW_BYTES: Final = 32 * 1024
# For each known workload one number is kept; the limit matches the remembered reviews of usual size.
_MAX_MET: Final = 4096


class _Outcome(NamedTuple):
    """The complete result of a review, except for its uid."""

    word: str
    verdict: Verdict
    patch_bytes: int
    reply: ReviewReply


class Reviewer:
    """Answers reviews by the rulebook in force. `webhook.run` replaces the rulebook when the configuration changes.

    Outcomes for new pods are remembered by fingerprint, from the second pod of a workload on. So the thousand pods of a
    Job are judged twice, and a single pod costs neither a fingerprint nor memory.
    """

    def __init__(
        self,
        book: Rulebook,
        metrics: Metrics,
        denied: Callable[[Review, Verdict], None] | None = None,
        quotas_of: Callable[[str], Sequence[ResourceQuota]] | None = None,
    ) -> None:
        """Judge by *book*.

        Args:
            book: the rulebook in force.
            metrics: counts reviews.
            denied: receives denials.
            quotas_of: returns the known ResourceQuotas of a namespace.
        """
        self.metrics = metrics
        self._denied = denied
        self._quotas_of = quotas_of
        self._book = book
        self._mutated: dict[bytes, _Outcome] = {}
        self._validated: dict[bytes, _Outcome] = {}
        self._remembered_bytes = 0
        self._met: dict[Path, set[int]] = {path: set() for path in Path}

    @property
    def book(self) -> Rulebook:
        """The rulebook in force."""
        return self._book

    def obey(self, book: Rulebook) -> None:
        """Judge by *book* from now on. If it changes, the cards are unknown until they are read under it."""
        before, self._book = self._book, book
        as_before = book.tables is before.tables and book.settings is before.settings
        self.know(before.stock if as_before else None)

    def know(self, stock: Stock | None) -> None:
        """Record that the cluster offers *stock*; None = unknown."""
        self._book = self._book.with_stock(stock)
        self.metrics.inventory_known = int(stock is not None)
        self._forget()

    def _forget(self) -> None:
        self._mutated.clear()
        self._validated.clear()
        self._remembered_bytes = 0

    def answer(self, path: Path, body: bytes | bytearray) -> bytes:
        """Return the answer to the review in *body*; it carries the review's uid even if judging fails.

        Raises:
            InvalidRequestError: *body* is not a review, so there is no uid to answer.
        """
        metrics = self.metrics
        try:
            review = decode_review(body)
        except UnreadableObjectError as e:
            outcome = _outcome(unreadable(e), b"")
            metrics.reviews[path, "unreadable", outcome.word] += 1
            metrics.codes.update(outcome.verdict.codes)
            return encode_answer(e.uid, outcome.reply)
        began = time.perf_counter()
        try:
            outcome = self._judge(path, review, body)
            if path is Path.VALIDATE and self._quotas_of is not None and outcome.verdict.allowed:
                outcome = _told_more(outcome, self._left(review, self._quotas_of(review.namespace), body))
        except Exception:  # noqa: BLE001 (the last frame that knows the uid to answer to)
            # The API server treats a malformed answer as an outage. A well-formed one keeps cardshare's own failure
            # policy.
            _log.exception("review failed", review_uid=review.uid, pod=f"{review.namespace}/{review.name}")
            metrics.failures += 1
            outcome = self._failed()
        metrics.reviews[path, review.operation, outcome.word] += 1
        if outcome.patch_bytes:
            metrics.patch_bytes.observe(outcome.patch_bytes)
        if outcome.verdict is not NOTHING:
            self._tell(review, outcome.verdict)
        metrics.seconds.observe(time.perf_counter() - began)
        return encode_answer(review.uid, outcome.reply)

    def _judge(self, path: Path, review: Review, body: bytes | bytearray) -> _Outcome:
        found = review.object
        if found is not None and review.is_new_pod:
            return self._new_pod(path, review, found, len(body))
        return self._workload(path, review, body) if review.is_workload else self._outcome(path, review)

    def _new_pod(self, path: Path, review: Review, found: PodObject, size: int) -> _Outcome:
        if size > _MAX_REVIEW_BYTES or not self._meet(path, review, found):
            return self._outcome(path, review)
        outcomes = self._mutated if path is Path.MUTATE else self._validated
        like = fingerprint(found, review.namespace, review.user_name)
        known = outcomes.get(like)
        if known is not None:
            return known
        values = values_read(found)
        if values:
            # The fingerprint omits values that the rules read, so they are added to the key.
            like += values
            known = outcomes.get(like)
        return known or self._remembered(outcomes, like, self._outcome(path, review), size)

    def _meet(self, path: Path, review: Review, found: PodObject) -> bool:
        """Return whether a pod of the same workload as *found* was seen before, and record this one."""
        met, maker = self._met[path], hash((review.namespace, maker_of(found)))
        if maker in met:
            return True
        if len(met) >= _MAX_MET:
            met.clear()
        met.add(maker)
        return False

    def _remembered(self, outcomes: dict[bytes, _Outcome], like: bytes, outcome: _Outcome, size: int) -> _Outcome:
        self._remembered_bytes += size
        if self._remembered_bytes > _MAX_REMEMBERED_BYTES:
            self._forget()
            self._remembered_bytes = size
        outcomes[like] = outcome
        return outcome

    def _workload(self, path: Path, review: Review, body: bytes | bytearray) -> _Outcome:
        """Judge the final state of a workload; workloads are never changed."""
        if path is Path.MUTATE:
            return _outcome(NOTHING, b"")
        try:
            workload = decode_workload(body)
        except InvalidRequestError:
            # The API server has validated it, so this is an unknown kind. Its pods are judged later anyway.
            return _outcome(NOTHING, b"")
        return _outcome(judge_workload(workload, review.namespace, self._book), b"")

    def _left(
        self, review: Review, quotas: Sequence[ResourceQuota], body: bytes | bytearray
    ) -> tuple[AdmissionWarning, ...]:
        """Return warnings with the remaining quota for the cards that a user's new pod or workload requests."""
        if not quotas:
            return ()
        found = review.object
        if review.is_workload:
            try:
                made = budgets.made_by(decode_workload(body), review.namespace)
            except InvalidRequestError:
                return ()
        elif review.is_new_pod and found is not None and not is_made(found):
            made = (budgets.Made(pod_of(found, review.namespace)),)
        else:
            return ()
        return budgets.left(made, quotas, self._book)

    def _outcome(self, path: Path, review: Review) -> _Outcome:
        if path is Path.VALIDATE:
            return _outcome(validate(review, self._book), b"")
        verdict, patch = mutate(review, self._book)
        return _outcome(verdict, patch)

    def _tell(self, review: Review, verdict: Verdict) -> None:
        tell(review, verdict, self.metrics, "pod")
        if not verdict.allowed and self._denied is not None:
            self._denied(review, verdict)

    def _failed(self) -> _Outcome:
        if self._book.settings.admission.admit_on_failure:
            reply = admit(warnings=["cardshare failed to check this object and admitted it"])
        else:
            reply = deny(
                "cardshare failed to check this object; try again, and if the error stays, "
                "report it to the cluster's operator",
                code=500,
                reason="InternalError",
            )
        return _Outcome("failed", NOTHING, 0, reply)


def tell(review: Review, verdict: Verdict, metrics: Metrics, key: str) -> None:
    """Count the codes of *verdict*, and log a denial; *key*: what the log calls the reviewed object."""
    metrics.codes.update(verdict.codes)
    if not verdict.allowed:
        _log.info(
            "review denied",
            **{key: f"{review.namespace}/{review.name}"},
            user=review.user_name[:128],
            operation=review.operation.value,
            codes=",".join(verdict.codes),
            review_uid=review.uid,
        )


def _told_more(outcome: _Outcome, warnings: tuple[AdmissionWarning, ...]) -> _Outcome:
    """Add *warnings* to *outcome*, which admits its object unchanged."""
    if not warnings:
        return outcome
    verdict = outcome.verdict
    return _outcome(replace(verdict, warnings=(*verdict.warnings, *warnings)), b"")


def _outcome(verdict: Verdict, patch: bytes) -> _Outcome:
    told = [str(one) for one in verdict.warnings]
    if not verdict.allowed:
        return _Outcome("denied", verdict, 0, deny(verdict.message, warnings=told))
    # A verdict without warnings needs no further reading.
    shown = verdict if verdict.warnings else NOTHING
    return _Outcome("patched" if patch else "allowed", shown, len(patch), admit(patch, told))
