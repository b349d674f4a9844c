"""YAML that somebody else wrote, to plain values, with bounded work whatever the text."""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from core.errors import ConfigError, quoted

# A ConfigMap holds no more than 1 MiB altogether.
MAX_BYTES: Final = 1024 * 1024
_MAX_DEPTH: Final = 64
# What a text may grow to when its aliases are written out: far more than any configuration, far less than a bomb.
_MAX_VALUES: Final = 200_000
_MAX_NUMBER: Final = 64


class _Loader(yaml.CSafeLoader):
    """As its base, and refuses values that are not what they say, and numbers longer than any that means something.

    YAML writes a number in many ways, some of which cost the square of their length to read (``1:1:1:...``), and others
    make one that Python refuses to write out again. Of a value with a tag (``!!bool x``) the base takes what it says on
    trust, and breaks over it.
    """

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """An ``int`` or a ``float``."""
        if len(node.value) > _MAX_NUMBER:
            where = f"line {node.start_mark.line + 1}"
            raise ConfigError(
                [f"{where}: a number of {len(node.value)} characters; write one of {_MAX_NUMBER} or less"]
            )
        return self.construct_tagged(node)

    def construct_tagged(self, node: yaml.ScalarNode) -> Any:
        """What the base makes of a node with this tag."""
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
    """As its base, and refuses a mapping that names a key twice, of which the base takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[tuple[str, str]] = set()
        # A tag makes a mapping of anything, which the base refuses.
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = (key.tag, str(key.value))
            if name in names:
                where = f"line {key.start_mark.line + 1}"
                raise ConfigError([f"{where}: key {quoted(str(key.value))} stands there twice; remove one"])
            names.add(name)
        return super().construct_mapping(node, deep)


def load(text: str, what: str, *, strict: bool = False) -> Any:
    """The one document in *text*; None when it is empty.

    Args:
        text: what was written.
        what: whose text it is.
        strict: refuse a key that stands twice in one mapping, as formats of our own do.

    Raises:
        ConfigError: too long, no YAML, too deep, or aliases that grow without bound; names *what*.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError([f"{what}: write no more than {MAX_BYTES} characters"])
    try:
        _measure(yaml.parse(text, Loader=yaml.CSafeLoader), what)
        return yaml.load(text, Loader=_StrictLoader if strict else _Loader)  # noqa: S506 (both are safe ones)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as e:
        if isinstance(e, ConfigError):
            raise
        raise ConfigError([f"{what}: {_elided(text) or f'this is not YAML: {_one_line(str(e))}'}"]) from e


def _measure(events: Iterator[Any], what: str) -> None:
    """Count the values that *events* stand for once every alias is written out."""
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


def _elided(text: str) -> str:
    """What to write for dots that stand for something left out, as guides have them; "" where there are none."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip().removeprefix("- ") in {"...", "…"}:
            return f"line {number}: '{line.strip()}' stands for lines that were left out; write them, or remove it"
    return ""


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:240]
