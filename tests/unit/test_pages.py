"""What the pages point to is there, and what they have people apply does what they say."""

import json
import re
from pathlib import Path

import pytest
import yaml

from core.admission.mutate import judge_new
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.names import SCHEDULER_NAME
from core.settings import Settings, Tables
from core.wire.pods import decode_pod
from tests.support.devices.reviewed import reviewed

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
INSTALL = (ROOT / "docs/operators/install.md").read_text(encoding="utf-8")
DECISIONS = ROOT / "docs/decisions"
BOOK = rulebook(Settings(), Tables(), standard_catalog())
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchor_of(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor_of(found) for found in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_readme():
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)
        ahead += [(page.parent / link).resolve() for link in links if link]
    assert set(PAGES) - seen == set()


def test_what_installing_is_tried_with_names_no_scheduler_and_gets_ours():
    section = INSTALL.partition("\n## 3.")[2].partition("\n## ")[0]
    (named,) = set(re.findall(r"kubectl apply .*-f (docs/examples/\S+)", section))
    (manifest,) = yaml.safe_load_all((ROOT / named).read_text(encoding="utf-8"))
    pod = decode_pod(json.dumps(manifest).encode())
    edits = judge_new(reviewed(pod), "dana", BOOK).verdict.edits
    assert f"describe pod {pod.name}\n" in section
    assert [edit.values["schedulerName"] for edit in edits if "schedulerName" in edit.values] == [SCHEDULER_NAME]


def test_what_names_volcano_is_nobodys_under_the_default_overlay():
    pod = decode_pod(json.dumps(yaml.safe_load((ROOT / "docs/examples/hami-core.yaml").read_text())).encode())
    edits = judge_new(reviewed(pod), "dana", BOOK).verdict.edits
    assert pod.scheduler_name == "volcano"
    assert not any("schedulerName" in edit.values for edit in edits)
    overlay = yaml.safe_load((ROOT / "deploy/overlays/volcano-name/settings.yaml").read_text())
    assert "[cardshare, volcano]" in overlay["data"]["cardshare.yaml"]
    assert "cardshare" in Settings().scheduler_names
    assert "volcano" not in Settings().scheduler_names


def test_what_is_applied_is_removed():
    pages = INSTALL + (ROOT / "docs/operators/preemption.md").read_text(encoding="utf-8")
    applied = set(re.findall(r"kubectl apply -[fk] ([\w/.-]+)", pages)) - {"docs/examples/memory-only.yaml", "-"}
    removed = set(re.findall(r"kubectl delete .*-[fk] ([\w/.-]+)", INSTALL.partition("\n## Remove it\n")[2]))
    assert applied == removed == {"../cardshare-cluster", "deploy/mindcluster.yaml", "deploy/preemption.yaml"}


def test_every_decision_is_listed_under_its_number():
    listed = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\)", (DECISIONS / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    files = sorted(path.name for path in DECISIONS.glob("0*.md"))
    assert [name for _, name in listed] == files
    assert [number for number, _ in listed] == [f"{at:04}" for at in range(1, len(files) + 1)]
    for number, name in listed:
        assert (DECISIONS / name).read_text(encoding="utf-8").startswith(f"# {number}: ")
