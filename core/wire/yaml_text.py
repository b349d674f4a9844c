"""Untrusted YAML to plain values, with bounded work for any text."""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from core.errors import ConfigError, quoted

# A ConfigMap holds at most 1 MiB in total.
MAX_BYTES: Final = 1024 * 1024
_MAX_DEPTH: Final = 64
# The limit for values after expanding aliases: far more than any configuration, far less than a bomb.
_MAX_VALUES: Final = 200_000
_MAX_NUMBER: Final = 64
# A line of the text, as the loaders here and the parser write it.
_PLACE: Final = re.compile(r'(^|in "<unicode string>", )line (\d+)')


class _Loader(yaml.CSafeLoader):
    """A loader that rejects values that do not match their tag, and excessively long numbers.

    YAML has many forms of numbers. Some cost the square of their length to read (``1:1:1:...``), and others give
    numbers that Python refuses to format. The base class does not check that a value matches its tag (``!!bool x``),
    and fails on it.
    """

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Construct an ``int`` or a ``float``."""
        if len(node.value) > _MAX_NUMBER:
            where = f"line {node.start_mark.line + 1}"
            raise ConfigError(
                [f"{where}: a number of {len(node.value)} characters; write one of {_MAX_NUMBER} or less"]
            )
        return self.construct_tagged(node)

    def construct_tagged(self, node: yaml.ScalarNode) -> Any:
        """Construct a node with this tag as the base class does."""
        try:
            return yaml.CSafeLoader.yaml_constructors[node.tag](self, node)
        except (AttributeError, LookupError, ValueError, OverflowError) as e:
            kind = node.tag.rpartition(":")[2]
            where = f"line {node.start_mark.line + 1}"
            raise ConfigError([f"{where}: {quoted(str(node.value))} is no {kind}; correct it, or quote it"]) from e

    yaml_constructors = {  # noqa: RUF012 (as its base has it)
        **yaml.CSafeLoader.yaml_constructors,
        "tag:yaml.org,2002:int": construct_number,
        "tag:yaml.org,2002:float": construct_number,
        "tag:yaml.org,2002:bool": construct_tagged,
        "tag:yaml.org,2002:timestamp": construct_tagged,
    }


class _StrictLoader(_Loader):
    """A loader that rejects repeated keys in a mapping; the base class takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[tuple[str, str]] = set()
        # A tag can turn any node into a mapping, which the base class rejects.
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = (key.tag, str(key.value))
            if name in names:
                where = f"line {key.start_mark.line + 1}"
                raise ConfigError([f"{where}: key {quoted(str(key.value))} stands there twice; remove one"])
            names.add(name)
        return super().construct_mapping(node, deep)


def load(text: str, what: str, *, strict: bool = False, first_line: int = 1) -> Any:
    """Return the only document in *text*; None if it is empty.

    Args:
        text: the text.
        what: name of the text for messages.
        strict: reject repeated keys in a mapping, as cardshare's own formats do.
        first_line: the line of its file where *text* begins, for messages.

    Raises:
        ConfigError: too long, not YAML, too deep, or unbounded aliases; names *what*.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError([f"{what}: write no more than {MAX_BYTES} characters"])
    try:
        _measure(yaml.parse(text, Loader=yaml.CSafeLoader), what)
        return yaml.load(text, Loader=_StrictLoader if strict else _Loader)  # noqa: S506 (both are safe ones)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as e:
        if isinstance(e, ConfigError):
            raise ConfigError([_placed(one, first_line) for one in e.problems]) from e
        problem = (
            _elided(text, first_line)
            or _second(e, first_line)
            or f"this is not YAML: {_one_line(_placed(str(e), first_line))}"
        )
        raise ConfigError([f"{what}: {problem}"]) from e


def dump(value: object) -> str:
    """Return *value*, which `load` returned, as ASCII text that it reads the same."""
    # In block style, indentation can make it 60 times as long, too long for the ConfigMap in which it is saved.
    return str(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=True, width=MAX_BYTES))


def _measure(events: Iterator[Any], what: str) -> None:
    """Count the values of *events* after expanding every alias."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_nodes) >= _MAX_DEPTH:
                raise ConfigError([f"{what}: write no more than {_MAX_DEPTH} levels"])
            open_nodes.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ConfigError([f"{what}: alias *{event.anchor} stands inside what it names; write it out"])
            total += sizes[event.anchor]
        if total > _MAX_VALUES:
            raise ConfigError([f"{what}: its aliases make it too large; write the values out"])


def _elided(text: str, first_line: int) -> str:
    """Return a remedy for dots that stand for omitted lines, as in guides; "" if there are none."""
    for number, line in enumerate(text.splitlines(), start=first_line):
        if line.strip().removeprefix("- ") in {"...", "…"}:
            return f"line {number}: '{line.strip()}' stands for lines that were left out; write them, or remove it"
    return ""


def _second(error: Exception, first_line: int) -> str:
    """Return a remedy for a text of several documents; "" if *error* is another one."""
    if isinstance(error, yaml.composer.ComposerError) and error.problem == "but found another document":
        where = f"line {error.problem_mark.line + first_line}: " if error.problem_mark else ""
        return f"{where}another document begins there; write only one"
    return ""


def _placed(text: str, first_line: int) -> str:
    """Return the problem *text* with the lines of the file; the text that was read begins at *first_line*."""

    def placed(found: re.Match[str]) -> str:
        return f"{'at ' if found[1] else ''}line {int(found[2]) + first_line - 1}"

    return _PLACE.sub(placed, text)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:240]
