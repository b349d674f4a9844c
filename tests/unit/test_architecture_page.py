"""docs/maintainers/architecture.md names what is in the code, and every word once."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/maintainers/architecture.md").read_text(encoding="utf-8")
ROOMS = ("core", "runtime", "kube", "certs", "webhook", "controller", "cli", "sandbox")


def section(number: int) -> str:
    return PAGE.partition(f"\n## {number}. ")[2].partition("\n## ")[0]


def test_who_owns_state_is_a_class_of_the_code():
    owners = re.findall(
        r"`(\w+)`", "\n".join(line.split("|")[1] for line in section(5).splitlines() if line[:3] == "| `")
    )
    files = (path.read_text(encoding="utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    classes = set(re.findall(r"^class (\w+)", "\n".join(files), re.MULTILINE))
    assert len(owners) > 10
    assert set(owners) - classes == set()


def test_files_that_are_named_are_there():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_each_call_on_a_pod_s_path_is_there():
    path = re.findall(r"^\| `([\w/]+\.py): ([\w.]+)` \|", section(3), re.MULTILINE)
    assert len(path) > 10
    for file, name in path:
        found = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)


def test_every_room_is_in_the_drawing():
    drawing = section(2).partition("```")[2].partition("```")[0]
    assert set(ROOMS) <= set(re.findall(r"\w+", drawing))


def test_every_dialect_is_told():
    rows = set(re.findall(r"^\| `(\w+)` \|", section(4), re.MULTILINE))
    folders = {path.name for path in (ROOT / "core/dialects").iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders - {"gpushare"} <= rows
    assert rows - folders == {"gpu_memory", "gpu_number"}


def test_the_glossary_has_every_word_once_and_in_order():
    words = re.findall(r"^\| (?!word \|)([^|-][^|]*) \|", section(10), re.MULTILINE)
    assert words == sorted(set(words), key=str.lower)
    assert len(words) > 40
