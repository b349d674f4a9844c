"""Judges an edit of the configuration's ConfigMaps when it is applied, with the code that reads them at a start.

Errors in cardshare's own settings are rejected. Errors in third-party ConfigMaps only cause warnings, because their
owners may support settings that cardshare does not (docs/decisions/0014-settings-at-the-apply.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from core.admission.verdict import MAX_TOLD, NOTHING, Verdict
from core.catalog import Catalog
from core.configuration import Decoded, ReadSections, Source, Text, believes, decode, merge, source_of
from core.errors import quoted
from core.names import VERSION
from core.port.refusals import Violation
from core.settings import Settings
from core.warnings import AdmissionWarning
from core.wire.config_maps import ReviewedConfigMap

# The codes of `kubectl cards doctor`: a refused text, and ineffective parts of a text.
REFUSED: Final = "CS602"
NOTED: Final = "CS603"
# The API server drops all warnings of an answer with more than 4,096 characters in total, at 256 each.
_MAX_WARNINGS: Final = 12
_OWN: Final = (Source.OWN, Source.SCHEDULER_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The configuration in force at an edit: its parts by source, its sections, and trusted third-party namespaces."""

    parts: Mapping[Source, Decoded]
    sections: ReadSections
    settings: Settings
    trusted: frozenset[str]


def judge_edit(
    namespace: str, new: ReviewedConfigMap, old: ReviewedConfigMap | None, now: InForce, catalog: Catalog
) -> Verdict:
    """Return the verdict on *new* replacing *old* in *namespace*; unchanged texts are not judged again.

    The API server sends only ConfigMaps that are read as configuration, so every one that is not third-party is
    cardshare's.
    """
    name = f"{namespace}/{new.name}"
    others = source_of(name, now.settings)
    if others is not None and not believes(namespace, now.trusted):
        return NOTHING
    sources = (others,) if others is not None else _OWN
    texts = [_text(source, name, new) for source in sources]
    before = [_text(source, name, old) for source in sources] if old is not None else []
    found = [decode(text, catalog) for text in texts if text not in before]
    problems = [problem for one in found for problem in one.problems]
    if problems and others is None and new.version in {"", VERSION}:
        remedy = "; ".join(_first_of(problems, MAX_TOLD))
        return Verdict(violations=(Violation(code=REFUSED, field=f"ConfigMap {name}", found="", remedy=remedy),))
    told = [AdmissionWarning(REFUSED, one) for one in _refused(problems, new, is_own=others is None)]
    told += [AdmissionWarning(NOTED, one) for one in _notes(found, now, catalog)]
    if others is None:
        told += [AdmissionWarning(NOTED, one) for one in _unread(new, before, texts)]
    if len(told) > _MAX_WARNINGS:
        more = len(told) - _MAX_WARNINGS + 1
        told[_MAX_WARNINGS - 1 :] = [AdmissionWarning(told[-1].code, f"and {more} more")]
    return Verdict(warnings=tuple(told))


def _text(source: Source, name: str, found: ReviewedConfigMap) -> Text:
    """Return the text of *found* for *source*, with the key as its path; a mounted file has the same content."""
    key = source.key
    content = found.texts.get(key, "")
    problems: tuple[str, ...] = ()
    if source in _OWN and key in found.binary:
        try:
            content = found.binary[key].decode()
        except UnicodeDecodeError:
            problems = ("it is not UTF-8 text",)
    return Text(source=source, config_map=name, path=key, content=content, problems=problems)


def _first_of(problems: Sequence[str], count: int) -> list[str]:
    more = len(problems) - count
    return [*problems[:count], f"and {more} more"] if more > 0 else list(problems)


def _refused(problems: Sequence[str], new: ReviewedConfigMap, *, is_own: bool) -> list[str]:
    """Return the *problems* of a text that is stored anyway, preceded by their effect."""
    if not problems:
        return []
    if is_own:
        why = (
            f"label app.kubernetes.io/version: found {quoted(new.version)}; this webhook has version {VERSION}, so it "
            "only warns about these settings; those in force stay until a version runs that can read the new ones"
        )
    else:
        why = "cardshare cannot read this text and keeps using the previous one"
    return [why, *problems]


def _notes(found: Sequence[Decoded], now: InForce, catalog: Catalog) -> list[str]:
    """Return which parts of the texts *found* would be ineffective if in force."""
    good = {one.text.source: one for one in found if not one.problems and one.part is not None}
    if not good:
        return []
    places = tuple([f"{one.text.path}: " for one in good.values()])
    return [
        note for note in merge({**now.parts, **good}, catalog, before=now.sections).notes if note.startswith(places)
    ]


def _unread(new: ReviewedConfigMap, before: Sequence[Text], texts: Sequence[Text]) -> list[str]:
    """Return what is missing from cardshare's own ConfigMap, and its unused keys."""
    left = {text.path for text in texts if text.content.strip()}
    gone = [
        f"{text.path}: the text was removed; all its settings have their defaults"
        for text in before
        if text.content.strip() and text.path not in left
    ]
    known = [source.key for source in _OWN]
    strange = sorted({*new.texts, *new.binary}.difference(known))
    return gone + [f"key {quoted(key)}: it is ignored; known keys are {', '.join(known)}" for key in strange]
