"""Flags declared as fields of a dataclass."""

import argparse
from dataclasses import dataclass
from enum import StrEnum

import pytest

from core.errors import ConfigError
from runtime import flags
from runtime.flags import flag, several, unique
from runtime.listening import Address


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True, kw_only=True)
class Base:
    token: str = flag(flags.FILE, "its file")


@dataclass(frozen=True, kw_only=True)
class Options(Base):
    listen: Address = flag(flags.ADDRESS, "where", ":1")
    timeout_s: float = flag(flags.seconds(0.5, 60), "how long", "2", name="-t --timeout")
    size: Size = flag(flags.one_of(Size), "how large")
    names: tuple[str, ...] = several(flags.NAMESPACE, "who", name="--name")
    nodes: tuple[str, ...] = several(flags.TEXT, "where", splits=True)
    trusted: frozenset[str] = unique(flags.NAMESPACE, "whom", listed=True)
    key: str = flag(flags.TEXT, "which", missing="name the key")
    dry: bool = flag(flags.SWITCH, "write nothing")
    colors: bool = flag(flags.OFF, "no colors", name="--no-colors")
    made: int = 0


def parse(*argv: str, **environ: str) -> Options:
    return flags.parse(argparse.ArgumentParser(prog="x", allow_abbrev=False), Options, argv, environ)


def test_what_is_not_given_has_its_default():
    found = parse("--key", "k")
    assert found == Options(key="k")
    assert (str(found.listen), found.timeout_s, found.size, found.colors, found.dry) == (":1", 2, "small", True, False)


def test_a_flag_wins_over_its_variable_and_an_empty_variable_is_none():
    environ = {"CARDSHARE_KEY": "k", "CARDSHARE_TIMEOUT": "3", "CARDSHARE_LISTEN": "", "CARDSHARE_TOKEN": "t"}
    found = parse("-t", "4", **environ)
    assert (found.timeout_s, found.listen.port, found.token) == (4, 1, "t")


def test_several_values_are_repeated_or_separated_by_commas_where_that_is_said():
    found = parse("--key", "k", "--name", "a", "b", "--name", "c", "--nodes", "x,y", "--nodes", "z")
    assert (found.names, found.nodes) == (("a", "b", "c"), ("x", "y", "z"))
    assert parse(CARDSHARE_KEY="k", CARDSHARE_NAME="a, b").names == ("a", "b")


def test_of_a_list_that_is_given_again_only_the_last_counts():
    assert parse("--key", "k", "--trusted", "a,b", "--trusted", "c,d").trusted == {"c", "d"}
    assert parse("--key", "k", "--trusted", "a,b", "--trusted", "").trusted == frozenset()


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("1", True), ("False", False), ("0", False)])
def test_a_switch_of_a_process_may_have_a_text(text, expected):
    assert parse("--key", "k", "--dry", text).dry is expected
    assert parse(CARDSHARE_KEY="k", CARDSHARE_DRY=text, CARDSHARE_NO_COLORS=text).colors is not expected
    assert parse("--key", "k", "--dry").dry


def test_every_problem_is_listed_with_what_to_do():
    with pytest.raises(ConfigError) as caught:
        parse("--listen", "x", "-t", "1e1", "--size", "huge", "--name", "a", "B", CARDSHARE_NO_COLORS="perhaps")
    assert caught.value.problems == (
        "--listen (CARDSHARE_LISTEN): found 'x'; write host:port such as ':8080'",
        "--timeout (CARDSHARE_TIMEOUT): found '1e1'; write seconds from 0.5 to 60",
        "--size (CARDSHARE_SIZE): found 'huge'; write small or large",
        "--name (CARDSHARE_NAME): found 'B'; write names of namespaces, separated by commas",
        "--key (CARDSHARE_KEY): missing; name the key",
        "--no-colors (CARDSHARE_NO_COLORS): found 'perhaps'; write true or false",
    )


def test_help_has_the_own_flags_first_with_default_and_variable(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    told = " ".join(capsys.readouterr().out.split())
    assert "-t SECONDS, --timeout SECONDS how long (default 2) [CARDSHARE_TIMEOUT]" in told
    assert told.rindex("--no-colors") < told.rindex("--token")


@pytest.mark.parametrize("text", ["name", "/name", "space/", "a/b/c", "Space/name", "a b/c", "a.b/c"])
def test_an_object_is_named_with_its_namespace(text):
    assert flags.OBJECT.read(text) is None
    assert flags.CONFIG_MAP.read(text) is None


@pytest.mark.parametrize("text", ["a" * 300, "nothing/here", "\0"])
def test_what_cannot_be_a_file_is_not_there(text):
    assert flags.EXISTING.read(text) is None


def test_a_config_map_may_be_none():
    assert flags.CONFIG_MAP.read("") == ""
    assert flags.CONFIG_MAP.read("space/name.of-it") == "space/name.of-it"
