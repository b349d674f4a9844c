"""JSON patches: from edits of a document to the smallest RFC 6902 patch that always applies.

A patch that does not apply is an error for the user, even if failures of the webhook are ignored. So there is no
``test``, no parent is assumed to exist, and no absent value is replaced or removed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

Path = tuple[str, ...]


class Edit(NamedTuple):
    """Values to set in the mapping at *place*, by name; None = remove.

    there: existing names of the mapping, as far as the editor knows them.
    """

    place: Path
    values: Mapping[str, str | None]
    there: Collection[str] = ()


class Appended(NamedTuple):
    """Names and values to append to the list of named values at *place*, which must not have these names.

    All of its path except the last name must exist.
    """

    place: Path
    values: Mapping[str, str | None]


class _Put(msgspec.Struct, frozen=True, gc=False):
    op: str
    path: str
    value: Any


class _Remove(msgspec.Struct, frozen=True, gc=False, tag="remove", tag_field="op"):
    path: str


_encoder: Final = msgspec.json.Encoder()


class Present(NamedTuple):
    """The state of a document at the path of a mapping.

    depth: how many names of the path, from the first on, lead to something other than ``null``. names: those names in
    the mapping that do, if the mapping exists.
    """

    depth: int
    names: Collection[str]


def encode_patch(edits: Iterable[Edit | Appended], present: Callable[[Path], Present]) -> bytes:
    """Return the JSON patch for *edits*; b"" if nothing changes.

    Args:
        edits: values to set and to remove; no value's path is a prefix of another.
        present: returns the document's state at the path of a mapping; called if the edit does not contain it.
    """
    operations: list[_Put | _Remove] = []
    made: dict[Path, dict[str, Any]] = {}
    for edit in edits:
        if isinstance(edit, Appended):
            operations += _appended(edit, present(edit.place))
            continue
        place, values, names = edit
        if not names:
            depth, names = present(place)
            if depth < len(place):
                # The first missing parent is created once, with its whole content.
                added = {name: value for name, value in values.items() if value is not None}
                if added:
                    _put(made.setdefault(place[: depth + 1], {}), place[depth + 1 :], added)
                continue
        at = pointer(place) + "/"
        for name, value in values.items():
            if value is not None:
                operations.append(_Put("replace" if name in names else "add", at + _escaped(name), value))
            elif name in names:
                operations.append(_Remove(at + _escaped(name)))
    operations += [_Put("add", pointer(path), value) for path, value in made.items()]
    return _encoder.encode(operations) if operations else b""


def _appended(edit: Appended, present: Present) -> list[_Put]:
    at, entries = pointer(edit.place), [{"name": name, "value": value} for name, value in edit.values.items()]
    if present.depth < len(edit.place):
        return [_Put("add", at, entries)]
    return [_Put("add", at + "/-", entry) for entry in entries]


def _put(mapping: dict[str, Any], path: Path, values: Mapping[str, str]) -> None:
    for name in path:
        mapping = mapping.setdefault(name, {})
    mapping.update(values)


def pointer(path: Path) -> str:
    """Return *path* as a JSON pointer. Source: RFC 6901, 3."""
    text = "/".join(path)
    if "~" in text or text.count("/") != len(path) - 1:
        return "".join(["/" + _escaped(name) for name in path])
    return "/" + text  # true for every constant path


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _names_in(found: Any) -> list[str]:
    if isinstance(found, Mapping):
        return [name for name, value in found.items() if value is not None]
    return [one["name"] for one in found]


def present_in(document: Mapping[str, Any]) -> Callable[[Path], Present]:
    """Return a function for `encode_patch` with the state of *document*, parsed JSON."""

    def present(path: Path) -> Present:
        found: Any = document
        for depth, name in enumerate(path):
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list | tuple) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = None
            if found is None:
                return Present(depth, ())
        return Present(len(path), _names_in(found))

    return present
