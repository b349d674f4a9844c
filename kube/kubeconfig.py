"""Checks whether a kubeconfig is usable, its files and its context, before a process waits for a server.

The client library reads the credentials, but its errors say less. Source: Kubernetes documentation, "Organizing Cluster
Access Using kubeconfig Files"; the first file that sets a value wins.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from core.errors import escaped, quoted

_SHOWN: Final = 8


def problem_of(paths: str, context: str = "") -> str:
    """Return why the files in *paths*, joined by colons, have no usable context; "" if they have one.

    Args:
        paths: if there are several files, missing ones are skipped, as kubectl does.
        context: the context to use; "" for the current one.
    """
    try:
        _user(paths, context)
    except _UnusableError as e:
        return f"kubeconfig {escaped(paths)}: {e}"
    return ""


def has_plugin(paths: str, context: str = "") -> bool:
    """Return whether the user of the context gets its credentials from a plugin (`exec`); see `problem_of`."""
    try:
        return "exec" in _user(paths, context)
    except _UnusableError:
        return False


class _UnusableError(ValueError):
    """The problem and its remedy."""


def _user(paths: str, context: str) -> Mapping[str, Any]:
    """Return the user of the context, once everything that it needs was checked."""
    found = _merged([Path(path).expanduser() for path in paths.split(":") if path])
    contexts = found["contexts"]
    name = context or found["current-context"]
    if not name:
        raise _UnusableError(f"it has no current-context; set it to one of its contexts: {_list(contexts)}")
    if name not in contexts:
        raise _UnusableError(f"there is no context {quoted(name)}; its contexts are: {_list(contexts)}")
    cluster, user = (_entry(name, contexts[name], kind, found[f"{kind}s"]) for kind in ("cluster", "user"))
    _check_cluster(cluster, found["clusters"][cluster])
    chosen = found["users"][user]
    if not isinstance(chosen, dict):
        remedy = "write a token, a certificate or a plugin there, or {} if the server asks for nobody"
        raise _UnusableError(f"user {quoted(user)} has no mapping under user; {remedy}")
    return chosen


def _merged(files: Iterable[Path]) -> dict[str, Any]:
    there = [path for path in files if path.exists()]
    if not there:
        raise _UnusableError("there is no such file; check the path")
    merged: dict[str, Any] = {"current-context": "", "contexts": {}, "clusters": {}, "users": {}}
    for path in there:
        found = _read(path)
        merged["current-context"] = merged["current-context"] or _text(found.get("current-context"))
        for kind in ("contexts", "clusters", "users"):
            merged[kind] = _named(found.get(kind), kind) | merged[kind]
    return merged


def _read(path: Path) -> Mapping[str, Any]:
    if path.is_dir():
        raise _UnusableError(f"{path.name or path} is a directory; name a file")
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except OSError as e:
        raise _UnusableError(f"it cannot be read: {(e.strerror or str(e)).lower()}; check who may read it") from e
    # A YAML tag that does not match its value (`!!bool x`) makes the loader raise these other errors.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as e:
        raise _UnusableError(f"it is not YAML{_line_of(e)}; correct the file") from e
    if not isinstance(found, dict):
        raise _UnusableError("it is no kubeconfig: write a mapping with contexts, clusters and users")
    return found


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" (line {mark.line + 1})" if mark is not None else ""


def _named(found: object, kind: str) -> dict[str, Any]:
    entries = found or []
    if not isinstance(entries, list) or not all(isinstance(one, dict) and _text(one.get("name")) for one in entries):
        raise _UnusableError(f"{kind}: write a list of entries with a name each")
    # If two entries have the same name, the first counts.
    return {_text(one["name"]): one.get(kind.removesuffix("s")) for one in reversed(entries)}


def _text(found: object) -> str:
    """Return *found* if it is a name. A misindented mapping or list in its place may hold a token."""
    return str(found) if isinstance(found, str | int) else ""


def _entry(name: str, context: object, kind: str, entries: Mapping[str, object]) -> str:
    """Return the cluster or user that the context *name* uses."""
    named = _text(context.get(kind)) if isinstance(context, dict) else ""
    if named in entries:
        return named
    told = f"names {kind} {quoted(named)}, which is not there" if named else f"names no {kind}"
    remedy = (
        f"name one of its {kind}s: {_list(entries)}" if entries else f"it has no {kind}s: write one, and its name here"
    )
    raise _UnusableError(f"context {quoted(name)} {told}; {remedy}")


def _check_cluster(name: str, cluster: object) -> None:
    server = _text(cluster.get("server")) if isinstance(cluster, dict) else ""
    if not server:
        raise _UnusableError(f"cluster {quoted(name)} has no server; write its URL")
    if not _is_url(server):
        raise _UnusableError(f"cluster {quoted(name)}: server: found {quoted(server)}; write a URL: https://HOST:PORT")


def _is_url(text: str) -> bool:
    try:
        found = urlsplit(text)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        return False


def _list(names: Iterable[str]) -> str:
    known = [quoted(name) for name in names]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return (", ".join(known[:_SHOWN]) or "none") + more
