"""Manifest files: YAML or JSON, several documents in a file, lists of objects; each object with its line."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from core.errors import ConfigError
from core.wire import yaml_text

MAX_BYTES: Final = 16 * 2**20
_MARK: Final = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)


class Manifest(NamedTuple):
    """One object, and the line where its document starts, or its entry in a list."""

    line: int
    value: dict[str, Any]


class Unreadable(NamedTuple):
    """An unreadable document at its line."""

    line: int
    problem: str


def read_manifests(text: str) -> Iterator[Manifest | Unreadable]:
    """Yield every object in *text*, in order; an unreadable document does not block the others."""
    if len(text) > MAX_BYTES:
        yield Unreadable(1, f"write no more than {MAX_BYTES} characters to a file")
        return
    line, start = 1, 0
    for mark in (*_MARK.finditer(text), None):
        # A document may start on the line of its separator.
        end = mark.start() if mark is not None else len(text)
        yield from _document(text[start:end], line)
        if mark is not None:
            line += text.count("\n", start, mark.end())
            start = mark.end()


def _document(text: str, line: int) -> Iterator[Manifest | Unreadable]:
    # The line of the content, not of the comments before it.
    blank = (row.lstrip().startswith("#") or not row.strip() for row in text.split("\n"))
    first = line + next((at for at, is_blank in enumerate(blank) if not is_blank), 0)
    try:
        found = _with_text_keys(yaml_text.load(text, "document", first_line=line))
    except ConfigError as e:
        yield Unreadable(first, "; ".join(e.problems))
        return
    if found is None:
        return
    if not isinstance(found, dict):
        yield Unreadable(first, "an object has apiVersion, kind and metadata; this is none")
        return
    if str(found.get("kind")).endswith("List") and isinstance(found.get("items"), list):
        lines = _lines_of_items(text)
        for at, item in enumerate(found["items"]):
            where = line + lines[at] if at < len(lines) else first
            yield Manifest(where, item) if isinstance(item, dict) else Unreadable(where, "items are objects")
        return
    yield Manifest(first, found)


def _with_text_keys(found: Any) -> Any:
    """Return *found* with its keys as kubectl sends them: YAML reads ``on`` as a boolean, which becomes ``true``.

    Raises:
        ConfigError: a key is null.
    """
    if isinstance(found, dict):
        return {_text_key(key): _with_text_keys(value) for key, value in found.items()}
    return [_with_text_keys(one) for one in found] if isinstance(found, list | tuple) else found


def _text_key(key: Any) -> Any:
    if isinstance(key, bool):
        return str(key).lower()
    if key is None:
        raise ConfigError(["a key is nothing; write a text, in quotes"])
    return key


def _lines_of_items(text: str) -> list[int]:
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "items" and isinstance(value, yaml.SequenceNode):
            return [item.start_mark.line for item in value.value]
    return []


def review_of(manifest: dict[str, Any], namespace: str) -> bytes:
    """Return the AdmissionReview for the creation of *manifest*, in *namespace* if it names none."""
    group, slash, version = str(manifest.get("apiVersion") or "").rpartition("/")
    found = manifest.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    request = {
        "uid": "check",
        "kind": {"group": group if slash else "", "version": version, "kind": str(manifest.get("kind") or "")},
        "name": str(metadata.get("name") or metadata.get("generateName") or ""),
        "namespace": str(metadata.get("namespace") or namespace),
        "operation": "CREATE",
        "userInfo": {"username": "check"},
        "object": manifest,
        "dryRun": True,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return msgspec.json.encode(review)
