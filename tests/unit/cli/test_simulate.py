"""What ``kubectl cards simulate`` says where the controller's code is not installed, and how it reads and prints."""

import sys
from typing import Any

import pytest

import controller.simulating.simulate  # noqa: F401 (an import would block the loop of a command)
from cli.__main__ import main
from cli.fits import UnusableFileError
from cli.options import Controller, parse
from cli.simulate import change_of, fetch_simulated, simulated_table
from cli.snapshot import packed
from core.view.simulated import Simulated, SimulatedCard, SimulatedKind, SimulatedPod
from core.waiting import Cause
from core.wire.changes import Change


async def test_without_the_controllers_code_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "structlog", None)
    nobody: Any = None
    with pytest.raises(UnusableFileError, match="contains no simulator; install the wheel with pip"):
        await fetch_simulated(nobody, Change(), None)


def test_flags_are_the_change(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod", encoding="utf-8")
    words = ["-f", str(file), "--request", "a=1,b=", "--request", "c=2", "--drain", "n1,n2", "--drain", "n1"]
    words += ["--remove", "n3", "--repartition", "n4=mig", "--policy", "spread", "--add-nodes", "2", "--like", "n5"]
    options: Any = parse(["simulate", *words], {})
    assert change_of(options, "team") == Change(
        manifests="kind: Pod",
        file=str(file),
        namespace="team",
        requests=(("a", "1"), ("b", ""), ("c", "2")),
        add_nodes=2,
        like="n5",
        drain=("n1", "n2"),
        remove=("n3",),
        repartition=(("n4", "mig"),),
        policy="spread",
    )


def test_a_file_that_is_not_utf8_is_told_as_check_tells_it(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_bytes("kind: Pod".encode("utf-16"))
    options: Any = parse(["simulate", "-f", str(file)], {})
    with pytest.raises(UnusableFileError, match=r"it is not UTF-8 text$"):
        change_of(options, "team")


@pytest.mark.parametrize("words", ["", "--drain=", "--remove ,", "-f=", "--policy=", "--add-nodes 0"])
def test_a_change_without_content_is_none(words, capsys):
    with pytest.raises(SystemExit):
        parse(["simulate", *words.split()], {})
    assert "-f: missing; give -f, --add-nodes" in capsys.readouterr().err


def test_a_controller_is_asked_unless_a_snapshot_is_read(capsys):
    parsed: Any = parse
    words, environ = ["simulate", "--policy", "pack"], {"CARDSHARE_CONTROLLER": "https://c:1"}
    assert parsed(words, {}).controller is None
    assert parsed(words, environ).controller == Controller(url="https://c:1")
    assert parsed([*words, "--snapshot", "x"], environ).controller is None
    with pytest.raises(SystemExit):
        parse([*words, "--snapshot", "x", "--controller", "https://c:1"], {})
    assert "--controller: found beside --snapshot" in capsys.readouterr().err


def test_a_cluster_that_cannot_be_listed_is_no_mistake_of_the_command(tmp_path, capsys):
    file = tmp_path / "cluster.json.gz"
    lists = {"/api/v1/nodes": {"status": 403, "items": []}}
    lists |= {f"/api/v1/{kind}": {"items": []} for kind in ("configmaps", "resourcequotas")}
    file.write_bytes(packed({"version": 1, "taken": "2026-01-01T00:00:00Z", "namespace": "a", "collections": lists}))
    assert main(["simulate", "--drain", "n1", "--snapshot", str(file)]) == 1
    assert "nodes cannot be listed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "change", "text", "shown"),
    [
        ("CS501", "Wait until n1 is uncordoned", "0/1 nodes", "CS501 Wait until n1 is uncordoned"),
        ("CS545", Cause.CLAIM_NOT_FOUND.value.remedy, "volume claim 'd' does not exist", "CS545 volume claim 'd' does"),
        ("", "", "volcano decides", "volcano decides"),
    ],
)
def test_a_reason_says_what_it_is_about(code, change, text, shown):
    one = SimulatedPod(pod="a/x", because="added", outcome="waits", code=code, change=change, text=text)
    assert shown in simulated_table(Simulated(pods=(one,), kinds=(), losing=0, waiting=0))


def test_the_table_has_each_pod_each_type_and_who_would_lose():
    pods = (
        SimulatedPod(
            pod="a/x", because="added", outcome="placed", node="n1", cards=(SimulatedCard(card="c", share="1 MiB"),)
        ),
        SimulatedPod(
            pod="a/y", because="preempted", outcome="waits", before="n1", code="CS501", change="Wait", evicted_for="a/x"
        ),
        SimulatedPod(pod="a/z", because="drained", outcome="ended", before="n1"),
    )
    kind = SimulatedKind(protocol="vgpu", type="", unit="MiB", cards_before=1, cards_after=2, free_before=None,
                         free_after=None, stranded_before=0, stranded_after=5)  # fmt: skip
    found = Simulated(pods=pods, kinds=(kind,), losing=2, waiting=1, notes=("so \x1b it is",))
    assert simulated_table(found).splitlines() == [
        "POD  BECAUSE    BEFORE  OUTCOME  NODE  CARDS OR REASON",
        "a/x  added      -       placed   n1    c (1 MiB)",
        "a/y  preempted  n1      waits    -     evicted for a/x; CS501 Wait",
        "a/z  drained    n1      ended    -     nothing creates it again",
        "",
        "PROTOCOL  TYPE  CARDS   FREE     STRANDED",
        "vgpu      -     1 -> 2  unknown  0 -> 5 MiB",
        "2 pods that run now would not run",
        "1 other pod would still wait",
        r"note: so \x1b it is",
    ]


def test_nothing_to_tell_is_said():
    found = Simulated(pods=(), kinds=(), losing=0, waiting=0)
    assert simulated_table(found) == "no pod would be placed or moved\nevery pod that runs now would run"
