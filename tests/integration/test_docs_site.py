"""scripts/docs: the pages as a site, with search in both languages; a link that leads nowhere ends it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node import apart

ROOT = Path(__file__).parents[2]

# A checkout of four pages, of which one has links that lead nowhere.
PAGES = {
    "README.md": "# Project\n\n[pages](docs/index.md)\n",
    "docs/index.md": "# Pages\n\n| page | for users |\n|---|---|\n| [settings](settings.md) | all |\n",
    "docs/zh/index.md": "# 页面\n\n[settings](../settings.md)\n",
    "docs/settings.md": "# Settings\n\n[a](nowhere.md) [b](index.md#nowhere)\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    ended = subprocess.run([ROOT / "scripts/docs", out], capture_output=True, text=True, check=False, timeout=500)
    if "No matching distribution found" in ended.stderr or "Could not find a version" in ended.stderr:
        pytest.skip(f"scripts/docs cannot install requirements-docs.lock: {ended.stderr[-300:]}")
    assert ended.returncode == 0, ended.stderr
    return out


def test_every_page_is_on_it_and_begins_in_the_navigation(site):
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not (site / page.relative_to(ROOT)).with_suffix(".html").is_file()] == []
    start = (site / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'class="caption"[^>]*><span class="caption-text">([^<]+)', start) == [
        *("users", "operators", "maintainers"),
        *("面向用户", "面向运维"),
    ]


def test_it_loads_nothing_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//')
    assert [page for page in site.rglob("*.html") if loaded.search(page.read_text(encoding="utf-8"))] == []


def test_search_finds_english_and_chinese(site):
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert {"preempt", "等待", "优先"} <= index["terms"].keys()


def test_a_link_that_leads_nowhere_ends_it_and_no_network_is_needed(site, tmp_path):
    unshared = apart.unshared("--net")
    copy = tmp_path / "checkout"
    for name in ("pyproject.toml", "scripts/building/docs_site.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    (copy / "docs/zh").mkdir(parents=True)
    for name, text in PAGES.items():
        (copy / name).write_text(text, encoding="utf-8")
    command = [*unshared, sys.executable, str(copy / "scripts/building/docs_site.py"), str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert "'nowhere.md'" in ended.stderr
    assert "index.md#nowhere" in ended.stderr or "'nowhere'" in ended.stderr
    warned = [line for line in ended.stderr.splitlines() if "settings.md" not in line and "WARNING" in line]
    assert warned == []
