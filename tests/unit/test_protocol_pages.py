"""The pages on protocols number every defect, say what is done about it, and name as proof what is there."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
PROTOCOLS = sorted((ROOT / "docs/protocol").glob("*.md"))
FACTS = ROOT / "docs/maintainers/facts.md"
EXAMPLES = {"nvidia": DATA / "nvidia-worked-examples.yaml", "ascend": DATA / "ascend-examples.yaml"}
ROW = re.compile(r"^\| ([A-Z]+-?\d+) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
DEFECT = re.compile(r"^\| ([A-Z]+-?\d+) \|", re.MULTILINE)
HEADING = re.compile(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", re.MULTILINE)

each_page = pytest.mark.parametrize("page", PROTOCOLS, ids=lambda page: page.stem)


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def all_tests() -> frozenset[str]:
    """The names of all tests."""
    files = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in files for name in re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


@cache
def tags() -> frozenset[str]:
    """The defects that recorded vectors carry."""
    found = re.compile(r'"defect": ?"([^"]*)"')
    texts = (path.read_text(encoding="utf-8") for path in (DATA / "vectors").glob("*.json"))
    return frozenset(tag for text in texts for each in found.findall(text) for tag in each.split(","))


@cache
def examples(protocol: str) -> frozenset[str]:
    """The short names of a protocol's worked examples."""
    text = EXAMPLES[protocol].read_text(encoding="utf-8")
    found = [one for one in yaml.safe_load_all(text) if one]
    listed = found[0].get("examples", found)
    return frozenset(str(one["id"]).partition("-")[0] for one in listed if "id" in one)


@each_page
def test_every_defect_is_told_with_what_is_done(page):
    text = text_of(page)
    rows = ROW.findall(text)
    assert [number for number, *_ in rows] == DEFECT.findall(text)
    assert [row for row in rows if not all(cell.strip() for cell in row)] == []
    by_letter: dict[str, list[int]] = {}
    for number, *_ in rows:
        letter, figure = re.fullmatch(r"(\D+)(\d+)", number).groups()  # type: ignore[union-attr]
        by_letter.setdefault(letter, []).append(int(figure))
    assert by_letter
    assert all(figures == list(range(1, len(figures) + 1)) for figures in by_letter.values())


@pytest.mark.parametrize("page", [*PROTOCOLS, FACTS], ids=lambda page: page.stem)
def test_what_a_page_names_as_its_proof_is_a_test(page):
    named = set(re.findall(r"`(test_\w+)`", text_of(page)))
    assert named - all_tests() == set()


@pytest.mark.parametrize("protocol", EXAMPLES)
def test_what_a_row_names_as_its_proof_is_there(protocol):
    rows = ROW.findall(text_of(ROOT / f"docs/protocol/{protocol}.md"))
    proofs = {number: proof for number, _, _, proof in rows}
    assert {number for number, proof in proofs.items() if "vectors" in proof} - tags() == set()
    named = {
        one
        for proof in proofs.values()
        for listed in re.findall(r"examples? ([\w, ]+)", proof)
        for one in _names(listed)
    }
    assert named - examples(protocol) == set()
    assert len([proof for proof in proofs.values() if proof != "-"]) > 0.85 * len(proofs)


def _names(listed: str) -> list[str]:
    return re.findall(r"\b[HMSNP]\d\d[ab]?\b", listed)


@pytest.mark.parametrize("protocol", EXAMPLES)
def test_a_defect_that_vectors_carry_has_its_row(protocol):
    letters = {"nvidia": "SPO", "ascend": "HMCD"}[protocol]
    carried = {tag for tag in tags() if re.fullmatch(rf"[{letters}]-?\d+", tag)}
    assert carried
    assert carried - set(DEFECT.findall(text_of(ROOT / f"docs/protocol/{protocol}.md"))) == set()


@each_page
def test_a_page_points_only_to_sections_that_it_has(page):
    named = set(re.findall(r"\((\d{1,2}(?:\.\d{1,2})?)\)", text_of(page)))
    assert named
    assert named - set(HEADING.findall(text_of(page))) == set()


def test_the_formats_that_a_page_shows_can_be_read():
    text = text_of(ROOT / "docs/protocol/ascend.md")
    shown = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert shown
    assert all(json.loads(one) for one in shown)
