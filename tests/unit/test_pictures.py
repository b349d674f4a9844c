"""The pictures of the pages are what their text draws, and text fits into its box."""

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from scripts.building import pictures

ROOT = Path(__file__).parents[2]
TEXTS = sorted((ROOT / "docs/pictures").glob("*.yaml"))
# A letter of 13 px, at its widest on average.
LETTER_PX = 7.6


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_picture_is_what_its_text_draws(path):
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".svg").read_text(encoding="utf-8") == pictures.drawn(text)
    width, height = text["size"]
    for box in text["boxes"].values():
        assert max(len(line) for line in (box["title"], *box["lines"])) * LETTER_PX < box["size"][0]
        assert box["at"][0] + box["size"][0] <= width
        assert box["at"][1] + box["size"][1] <= height


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_picture_is_for_light_and_dark_pages_and_says_what_it_shows(path):
    text = path.with_suffix(".svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).attrib["aria-label"]
    assert "prefers-color-scheme: dark" in text


def test_a_word_too_many_is_one_line():
    ended = subprocess.run([ROOT / "scripts/pictures", "x"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "scripts/pictures: it takes nothing but --help\n")
