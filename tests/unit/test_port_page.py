"""docs/maintainers/adding-a-dialect.md tells of everything that the port asks, and names what is there."""

import re
from pathlib import Path

import pytest

from core.port import dialect, optional
from core.sharing.dialect import Declared
from tests.support.devices.texts import WORDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/maintainers/adding-a-dialect.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`]+)`", PAGE)
PROTOCOLS = [
    one
    for module in (dialect, optional)
    for one in vars(module).values()
    if getattr(one, "_is_protocol", False) and one.__module__ == module.__name__
]
ASKED = sorted({name for one in PROTOCOLS for name, what in vars(one).items() if name[0] != "_" and callable(what)})


@pytest.mark.parametrize("method", ASKED)
def test_every_method_of_the_port_is_told(method: str):
    assert any(re.match(rf"{method}\b", words) for words in CODE)


def test_what_is_called_a_method_is_one_of_the_port():
    called = {found[1] for words in CODE if (found := re.match(r"([a-z]\w*)\([a-z]", words))}
    assert called <= {*ASKED, *vars(Declared)}
    assert {"place", "rotate", "lock"} <= called


def test_what_only_some_dialects_have_is_told_to_be_so():
    for one in PROTOCOLS:
        assert one is dialect.Dialect or f"`{one.__module__}.{one.__name__}`" in PAGE


def test_files_that_are_named_are_there():
    named = [words for words in CODE if re.fullmatch(r"[\w/.-]+/[\w.-]+\.(py|md|yaml)", words)]
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_settings_name_every_dialect():
    (row,) = re.findall(r"^\| `dialects` .*$", (ROOT / "docs/settings.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"`{name}`" for name in WORDS.dialects} <= set(re.findall(r"`[^`]+`", row))
