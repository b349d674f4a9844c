"""Errors that leave the core: the user's text, the operator's settings, and our own mistakes."""

from collections.abc import Sequence


class InvalidRequestError(ValueError):
    """Text that somebody wrote cannot be read: what is wrong, where, what to write instead.

    Attributes:
        field: where the text stands, for example ``annotation volcano.sh/vgpu-mode``.
        found: the text itself, shortened and escaped.
        remedy: what to write instead, as a clause: ``write whole MiB such as '8192'``.
    """

    def __init__(self, field: str, found: str, remedy: str) -> None:
        self.field = field
        self.found = quoted(found)
        self.remedy = remedy
        super().__init__(f"{field}: found {self.found}; {remedy}")


class ConfigError(ValueError):
    """Settings that cannot be used; every problem is listed, not only the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class InvariantError(RuntimeError):
    """We are wrong: a card promised twice over, a holder unknown. Let through everywhere; the process rebuilds."""


class NodeInvariantError(InvariantError):
    """We are wrong about one node: it is set aside, with all that is on it, and the process goes on.

    Attributes:
        node: its name.
        problem: what is wrong.
    """

    def __init__(self, node: str, problem: str) -> None:
        self.node = node
        self.problem = problem
        super().__init__(f"node {node}: {problem}")


def quoted(text: str, limit: int = 64) -> str:
    """*text* in single quotes, control characters escaped, cut to *limit* characters."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"'{escaped(shown)}'"


def escaped(text: str) -> str:
    """*text* with control characters, line breaks among them, as escapes: fit for a terminal, a log or a label."""
    return text if text.isprintable() else "".join(map(_escaped_character, text))


def _escaped_character(c: str) -> str:
    return c if c.isprintable() else c.encode("unicode_escape").decode()
