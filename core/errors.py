"""Errors that leave the core: invalid text of users, invalid settings of operators, and bugs in cardshare."""

from collections.abc import Sequence


class InvalidRequestError(ValueError):
    """Text from a user cannot be read: the problem, its location, and the correction.

    Attributes:
        field: location of the text, for example ``annotation volcano.sh/vgpu-mode``.
        found: the text itself, shortened and escaped.
        remedy: what to write instead, as a clause: ``write whole MiB such as '8192'``.
    """

    def __init__(self, field: str, found: str, remedy: str) -> None:
        self.field = field
        self.found = quoted(found)
        self.remedy = remedy
        super().__init__(f"{field}: found {self.found}; {remedy}")


class ConfigError(ValueError):
    """Unusable settings; lists every problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class InvariantError(RuntimeError):
    """A bug in cardshare: a card promised twice, an unknown holder. It is never caught; the process restarts."""


class NodeInvariantError(InvariantError):
    """A bug in cardshare that affects one node: the node is set aside with its pods, and the process continues.

    Attributes:
        node: its name.
        problem: what is wrong.
    """

    def __init__(self, node: str, problem: str) -> None:
        self.node = node
        self.problem = problem
        super().__init__(f"node {node}: {problem}")


def quoted(text: str, limit: int = 64) -> str:
    """Return *text* in single quotes, with control characters escaped, cut to *limit* characters."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"'{escaped(shown)}'"


def escaped(text: str) -> str:
    """Return *text* with control characters and line breaks escaped, for terminals, logs and labels."""
    return text if text.isprintable() else "".join(map(_escaped_character, text))


def _escaped_character(c: str) -> str:
    return c if c.isprintable() else c.encode("unicode_escape").decode()
