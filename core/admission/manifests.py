"""Judges manifest files by the admission rules without a cluster, with locations in the file."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from core.admission.mutate import judge_at_once, unreadable
from core.admission.rulebook import Rulebook
from core.admission.templates import judge_workload
from core.admission.verdict import Verdict
from core.errors import InvalidRequestError, quoted
from core.wire import templates
from core.wire.manifests import Manifest, review_of
from core.wire.reviews import decode_review
from core.wire.templates import decode_workload

_POD: Final = ("", "Pod")


class Finding(NamedTuple):
    """One line for people, and whether the API server would reject the object."""

    where: str
    text: str
    denied: bool


def is_judged(one: Manifest) -> bool:
    """Return whether *one* is a pod or a workload with a spec."""
    group, kind = _kind(one)
    return bool(one.value.get("spec")) and ((group, kind) == _POD or (group, kind) in templates.KINDS)


def _kind(one: Manifest) -> tuple[str, str]:
    return str(one.value.get("apiVersion") or "").rpartition("/")[0], str(one.value.get("kind") or "")


def judge(one: Manifest, where: str, book: Rulebook, namespace: str) -> Iterator[Finding]:
    """Yield the findings on *one* at *where*, in *namespace* if it names none."""
    kind = _kind(one)[1]
    metadata = one.value.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    name = str(named.get("name") or named.get("generateName") or "")
    what = f"{kind} {quoted(name, 253)[1:-1]}"
    verdict = _verdict(
        review_of(one.value, namespace), str(named.get("namespace") or namespace), book, is_pod=_kind(one) == _POD
    )
    if not verdict.allowed:
        yield Finding(where, f"{what}: denied: {verdict.message}", True)
    for warning in verdict.warnings:
        yield Finding(where, f"{what}: warning: {warning}", False)


def _verdict(review: bytes, namespace: str, book: Rulebook, *, is_pod: bool) -> Verdict:
    try:
        return (
            judge_at_once(decode_review(review), book)
            if is_pod
            else judge_workload(decode_workload(review), namespace, book)
        )
    except InvalidRequestError as e:
        return unreadable(e)
