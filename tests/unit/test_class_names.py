"""No two public classes that a reader of one process meets have the same name."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each dialect is read by itself, and views are named as users see them.
APART = ("core/dialects/", "core/view/")
ALLOWED = {
    "Check": "Kueue's admission check; the command that checks manifests",
    "Entry": "of the scheduling queue; of a card's account: no file imports both",
    "Metrics": "those of a process; those of a dialect",
    "NodeLock": "any lock of a node; HAMi's",
    "Profile": "a kind of slice; a kind of MIG instance, in a register",
    "Record": "a card in HAMi's register; a card in Volcano's",
    "Source": "what a reflector reads from; a text of the configuration",
    "Tally": "members in each part of a group; cards, for views",
    "Verdict": "of admission; of a condition on cardshare's own pods",
}


def classes(*folders):
    """The files with a public class of each name."""
    found = defaultdict(set)
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        for one in re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if not name.startswith(APART):
                found[one].add(name)
    return found


# The folders that a reader of each process meets; the sandbox knows the product only from outside.
PROCESSES = [
    ("core", "kube", "runtime", "certs", "controller"),
    ("core", "kube", "runtime", "certs", "webhook"),
    ("core", "kube", "runtime", "certs", "cli"),
    ("kube", "runtime", "certs", "sandbox"),
]


@pytest.mark.parametrize("process", PROCESSES, ids="/".join)
def test_no_two_classes_of_a_process_have_one_name(process):
    twice = {name: files for name, files in classes(*process).items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in ALLOWED} == {}


def test_every_allowed_name_is_used_twice():
    found = [classes(*process) for process in PROCESSES]
    assert [name for name in ALLOWED if all(len(one[name]) < 2 for one in found)] == []
