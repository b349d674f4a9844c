"""JSON patches: edits of a document to the smallest RFC 6902 patch that surely applies.

A patch that does not apply is an error for the user even where the webhook's failures are ignored. So there is no
``test``, no parent is taken for granted, and nothing absent is replaced or removed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

Path = tuple[str, ...]


class Edit(NamedTuple):
    """One value to be set at *path*; None = to be removed."""

    path: Path
    value: str | None


class _Put(msgspec.Struct, frozen=True, gc=False):
    op: str
    path: str
    value: Any


class _Remove(msgspec.Struct, frozen=True, gc=False, tag="remove", tag_field="op"):
    path: str


_encoder: Final = msgspec.json.Encoder()


def encode_patch(edits: Iterable[Edit], present: Callable[[Path], bool]) -> bytes:
    """The patch that does *edits*, as JSON; b"" where nothing is left to do.

    Args:
        edits: values to set and to remove; no path is the beginning of another.
        present: whether the document has something other than ``null`` at a path. Parents below the first one that
            it has not are not asked for.
    """
    puts: dict[Path, Any] = {}
    missing: dict[Path, int] = {}
    removals: list[_Remove] = []
    for edit in edits:
        if edit.value is None:
            if present(edit.path):
                removals.append(_Remove(pointer(edit.path)))
        else:
            _put(puts, missing, edit, present)
    operations: list[_Put | _Remove] = [
        _Put("replace" if present(path) else "add", pointer(path), value) for path, value in puts.items()
    ]
    operations += removals
    return _encoder.encode(operations) if operations else b""


def _put(puts: dict[Path, Any], missing: dict[Path, int], edit: Edit, present: Callable[[Path], bool]) -> None:
    path = edit.path
    parent = path[:-1]
    depth = missing.get(parent)
    if depth is None:
        depth = missing[parent] = _depth_of_missing(parent, present)
    if depth > len(parent):
        puts[path] = edit.value
        return
    # The parent is made once, with all that belongs into it.
    inner = puts.setdefault(path[:depth], {})
    for name in path[depth:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = edit.value


def _depth_of_missing(parent: Path, present: Callable[[Path], bool]) -> int:
    """How many names of *parent* lead to the first that is missing; one more than it has if none is."""
    for depth in range(1, len(parent) + 1):
        if not present(parent[:depth]):
            return depth
    return len(parent) + 1


def pointer(path: Path) -> str:
    """*path* as a JSON pointer. Source: RFC 6901, 3."""
    return "".join(["/" + name.replace("~", "~0").replace("/", "~1") for name in path])


def present_in(document: Mapping[str, Any]) -> Callable[[Path], bool]:
    """For `encode_patch`: what *document*, parsed JSON, has at a path."""

    def present(path: Path) -> bool:
        found: Any = document
        for name in path:
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list | tuple) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                return False
        return found is not None

    return present
