"""docs/maintainers/adding-a-dialect.md has a whole dialect, and tells of all that one must write."""

import re
from pathlib import Path

import pytest

from core.catalog import Catalog, standard_catalog
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing import decide
from core.placing.decide import Shape, node_policy
from core.port import dialect
from core.port.dialect import Dialect, Usual
from core.port.handoff import Stamp
from core.port.spec import DialectSpec
from core.settings import Settings, Tables
from tests.support.devices.acme import DIALECT
from tests.support.devices.texts import WORDS
from tests.support.pages import vendors_page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/maintainers/adding-a-dialect.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
CODE = re.findall(r"`([^`]+)`", PROSE)


def methods_of(role: type) -> set[str]:
    return {name for name, what in vars(role).items() if name[0] != "_" and callable(what)}


ROLES = [one for one in Dialect.__mro__ if one.__module__ == dialect.__name__ and one is not Usual]
REQUIRED = {name for role in ROLES for name in methods_of(role)}


def test_a_dialect_writes_few_methods_and_the_page_is_short():
    assert len(REQUIRED) <= 16
    assert len(PAGE.splitlines()) <= 120


@pytest.mark.parametrize("method", sorted(REQUIRED))
def test_every_method_that_one_must_write_is_told(method: str):
    assert method in CODE


def test_every_field_of_a_dialect_is_told_where_it_is():
    told = DialectSpec.__doc__ or ""
    assert [name for name in DialectSpec.__dataclass_fields__ if not re.search(rf"\b{name}[:,]", told)] == []


def test_the_example_is_placed_and_read_back_beside_all_others():
    ledger = Ledger(Catalog((*standard_catalog().specs, DIALECT)), Tables(), Settings())
    have = {"acme.example/gpu": "6", "cpu": "4", "memory": "8Gi", "pods": "10"}
    cards = {"acme.example/cards": "A-0,Big,16,3:A-1,Big,16,3:"}
    ledger.set_node(Node(name=NodeName("n"), annotations=cards, capacity=have, allocatable=have))
    limits = {"acme.example/gpu": "1", "acme.example/gpumem": "9"}
    pods = [
        Pod(uid=PodUid(name), namespace="ns", name=name, containers=(Container(name="c", limits=limits),))
        for name in "abc"
    ]
    told = []
    for pod in pods:
        shape = decide.shape_of(pod, ledger)
        assert isinstance(shape, Shape)
        placement = decide.try_decide(ledger, node_policy(Settings()), pod, shape)
        if placement is None:
            told.append("none")
            continue
        ledger.reserve(placement)
        stamp = Stamp(node=placement.node, now_s=7, order=7)
        bound = DIALECT.port.annotations(placement.assignment, stamp, ledger.tables)
        told.append(bound["acme.example/held"])
    assert told == ["A-1,Acme,9,0:;", "A-0,Acme,9,0:;", "none"]


def test_files_that_are_named_are_there():
    named = [words for words in CODE if re.fullmatch(r"[\w/.-]+/[\w.-]+\.(py|md|yaml)", words)]
    assert len(named) > 4
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_settings_name_every_dialect():
    (row,) = re.findall(r"^\| `dialects` .*$", (ROOT / "docs/settings.md").read_text(encoding="utf-8"), re.MULTILINE)
    table = vendors_page.PAGE.read_text(encoding="utf-8")
    assert {f"`{name}`" for name in WORDS.dialects} <= set(re.findall(r"`[^`]+`", row + table))
