"""HyperNodes of Volcano: from the API server's JSON to `HyperNode`."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Final

import msgspec

from core.errors import InvalidRequestError
from core.groups import HyperNode, Members
from core.wire import reading
from core.wire.objects import Head, ObjectMeta, Selector, selector_of

_INNER: Final = "HyperNode"


class _Name(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Pattern(msgspec.Struct, frozen=True, gc=False):
    pattern: str = ""


class _Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    exact_match: _Name | None = None
    regex_match: _Pattern | None = None
    label_match: Selector | None = None


class _Member(msgspec.Struct, frozen=True, gc=False):
    type: str | None = ""
    selector: _Selector | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    tier: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = 0
    tier_name: str | None = ""
    members: tuple[_Member, ...] | None = None


class HyperNodeObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a HyperNode that are read. Source: Volcano, topology/v1alpha1 hypernode_types.go (groups 4.11)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None


_NO_SPEC: Final = _Spec()
_NO_SELECTOR: Final = _Selector()


def hyper_node_of(found: HyperNodeObject) -> HyperNode:
    """Return the value of a decoded HyperNode.

    Raises:
        InvalidRequestError: a pattern is not a regular expression.
    """
    return replace(_without_members(found), members=tuple(_members((found.spec or _NO_SPEC).members or ())))


def _without_members(found: HyperNodeObject) -> HyperNode:
    spec = found.spec or _NO_SPEC
    return HyperNode(name=found.metadata.name, tier=spec.tier or 0, tier_name=sys.intern(spec.tier_name or ""))


def _members(found: tuple[_Member, ...]) -> Iterator[Members]:
    for at, one in enumerate(found):
        selector, is_inner = one.selector or _NO_SELECTOR, one.type == _INNER
        if selector.exact_match is not None:
            yield Members(name=selector.exact_match.name, is_inner=is_inner)
        elif is_inner:
            continue  # HyperNodes are members only by name
        elif selector.regex_match is not None:
            yield Members(pattern=_pattern(selector.regex_match.pattern, at))
        elif labels := selector_of(selector.label_match):
            # An empty selector selects no node here (Volcano, util/hypernode/member_selector.go).
            yield Members(labels=labels)


def _pattern(text: str, at: int) -> str:
    place = f"spec.members[{at}].selector.regexMatch.pattern"
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as e:
        raise InvalidRequestError(place, text, "write a regular expression such as '^node-[0-9]+$'") from e
    remedy = _remedy(text)
    if remedy:
        raise InvalidRequestError(place, text, remedy)
    return text


# Escapes, character classes, group openings, quantifiers, and any other character.
_PARTS: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:<[=!]|P[=>]|[=!>#(]|[a-zA-Z-]+[:)])?)?|[*+?][+?]?|\{\d*,?\d*\}[+?]?|.",
    re.DOTALL,
)
# What Python accepts and Go does not, or reads in another way: back references, \\Z, look-around, atomic groups,
# comments, conditions, the flags a, u, x and L, possessive quantifiers, a count without a minimum, and POSIX classes.
_ONLY_PYTHON: Final = re.compile(
    r"\\[1-9Z]|\(\?(?:<[=!]|P[=>]|[=!>#(]|[a-zA-Z-]*[auxL])|[*+?]\+|\{\d+,?\d*\}\+|\{,|\[.*\[:", re.DOTALL
)
_OTHER: Final = (
    "write what Go's regular expressions mean the same by: no look-around, back references, possessive quantifiers, "
    "comments, [[:classes:]] or flags but i, m and s"
)
# So many ways to match a name count for one repeat. Python tries all ways of what stands in a row: four repeats, and
# some words to choose from beside them, end soon.
_REPEAT: Final = 32
_WAYS_END: Final = _REPEAT**5
_NESTED: Final = "repeat nothing that has a repeat, '?' or '|' inside: write '^[a-z-]+$' in place of '^([a-z]+-?)+$'"
_MANY: Final = "write at most 4 repeats in a row, and fewer '?' and '|' beside them"


def _remedy(pattern: str) -> str:
    """Return what to change in *pattern*; "" if it means the same in Go, and Python's search for it ends soon.

    Volcano reads patterns as Go does, whose search takes linear time. Python's can take exponential time if something
    is repeated that can match a text in several ways, and if many such things stand in a row.
    """
    # Of each open group: in how many ways its alternatives so far can match, and the one that is being read.
    groups = [[0, 1]]
    ways = 1  # of the part that was read last, if it is a group
    for part in _PARTS.findall(pattern):
        if _ONLY_PYTHON.match(part):
            return _OTHER
        last, ways = ways, 1
        if part[0] in "*+" or (part[0] == "{" and "," in part):
            if last > 1:
                return _NESTED
            groups[-1][1] *= _REPEAT
        elif part[0] == "{" and part[1:-1].isdigit():
            groups[-1][1] *= last ** min(max(int(part[1:-1]) - 1, 0), _REPEAT)
        elif part[0] == "?":
            groups[-1][1] *= 2
        elif part == "|":
            groups[-1] = [sum(groups[-1]), 1]
        elif part == ")":
            ways = sum(groups.pop())
            groups[-1][1] *= ways
        elif part[0] == "(" and not part.endswith(")"):
            groups.append([0, 1])
        if groups[-1][1] >= _WAYS_END:
            return _MANY
    return ""


decode_hyper_node: Final = reading.reader("HyperNode", HyperNodeObject, hyper_node_of)

_decode_head: Final = reading.reader("HyperNode", Head, lambda found: found)
_decode_tier: Final = reading.reader("HyperNode", HyperNodeObject, _without_members)


def salvage_hyper_node(text: bytes) -> HyperNode:
    """Return a HyperNode that `decode_hyper_node` cannot read, without members, but with its tier if readable.

    The tier is kept because a limit to a tier without HyperNodes could mean no limit.

    Raises:
        InvalidRequestError: even its name is unreadable.
    """
    name = _decode_head(text).metadata.name
    try:
        return _decode_tier(text)
    except InvalidRequestError:
        return HyperNode(name=name)
