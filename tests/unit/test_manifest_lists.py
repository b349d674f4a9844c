"""Lists of keys, resources and accounts in deploy/base are those that follow from the dialects."""

import re

import pytest

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.dialects.hami_vendors.dialect import VENDORS
from core.settings import Settings, Tables
from tests.support.pages import chart, vendors_page
from tests.support.pages.manifest_lists import BASE, written

COMPARED = BASE.parents[1] / "docs" / "operators" / "compared.md"
BOOK = rulebook(Settings(), Tables(), standard_catalog())


@pytest.mark.parametrize("path", sorted(BASE.glob("*.yaml")), ids=lambda path: path.name)
def test_lists_are_as_the_dialects_say(path):
    text = path.read_text(encoding="utf-8")
    assert written(text, BOOK) == text, "run scripts/manifests"


def test_a_list_that_lacks_an_entry_is_completed_and_one_too_many_is_taken_out():
    text = (BASE / "admission.yaml").read_text(encoding="utf-8")
    changed = text.replace("              'volcano.sh/gpu-number',\n", "").replace(
        "            'predicate-time',\n", "            'predicate-time',\n            'predicate-times',\n"
    )
    assert changed != text
    assert written(changed, BOOK) == text


def test_a_list_of_something_else_is_refused():
    with pytest.raises(ValueError, match="follows from the dialects"):
        written("  x: [\n    'a',\n    'b'\n  ]\n", BOOK)


def test_tables_of_vendors_are_as_they_declare():
    text = vendors_page.PAGE.read_text(encoding="utf-8")
    assert text.count(", by scripts/manifests -->\n\n|") == 4
    assert vendors_page.written(text) == text, "run scripts/manifests"


def test_the_chart_is_what_follows_from_the_base():
    for name, text in chart.files().items():
        assert (chart.CHART / name).read_text(encoding="utf-8") == text, "run scripts/manifests"


def test_each_replacement_finds_in_the_base_what_it_replaces(monkeypatch):
    made, every = chart.files(), chart.REPLACED
    finds_nothing: list[str] = []
    for at, (replaced, _) in enumerate(every):
        monkeypatch.setattr(chart, "REPLACED", (*every[:at], *every[at + 1 :]))
        if chart.files() == made:
            finds_nothing.append(replaced)
    assert finds_nothing == []


def test_the_comparison_names_every_vendor():
    row = re.search(r"^\| cards of (AMD, .*?) \|", COMPARED.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    makers = {vendor.maker.split()[0] for vendor in VENDORS}
    assert {maker for maker in makers if maker not in row[1].lower()} == set(), f"add them to {COMPARED.name}"
