"""Every benchmark runs, at its smallest, and measures something."""

import gc
import json
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench.__main__ import NAMES, main
from tests.support.browser.chromium import required
from tests.support.servers.fixtures_realapi import binaries_or_skip

# The options that make each small; of those that measure more than their other options do, more than one line.
SMALL: Final = {
    "admit": ["--seconds=0.1 --rounds=1 --answers=20 --unseen=20 --connections=2 --rate=50 --nodes=2"],
    "backlog": ["--nodes=2 --pods=2 --waiting=4 --shapes=2 --rounds=1 --rest=0.1"],
    "burst": ["--nodes=2 --pods=3 --seconds=0.01"],
    "decide": ["--nodes=8 --shapes=5 --decisions=20 --churn --selective --predicates --images --busy=1"],
    "gang": ["--nodes=6 --members=2 --rounds=2 --kinds=2", "--nodes=6 --members=3 --rounds=1 --empty --domains=3"],
    "gate": ["--rounds=1 --no-place"],
    "history": ["--pods=20"],
    "packing": ["--trace={trace} --list=small"],
    "place": ["--nodes=2 --pods=4 --rounds=1 --group=2 --brief"],
    "plan": ["--trace={trace} --list=small --share=100 --seed=1"],
    "refused": ["--nodes=11 --shapes=64"],
    "scale": ["--part=0.002 --only=preempted"],
    "simulate": ["--nodes=20 --pods=4 --seconds=0.5"],  # room for 10 pods a second while it simulates
    "soak": ["--nodes=2 --lives=50 --shapes=20"],
    "start": ["--nodes=2 --pods=4 --waiting=2 --rest=0"],
    "web": ["--nodes=3 --waiting=2 --updates=1"],
}
# What may be nothing: growth, what is lost, what is late, a server that is not there, what is too little to show.
MAY_BE_NOTHING: Final = {
    *("growth_pct", "rss_mib", "vector_mib", "dropped", "late_before", "late_during", "loop_stall_ms", "wait_p50_s"),
    *("open_loop_p99_over_echo_ms", "etcd_cpu_ms_per_pod", "bare_cpu_s", "bare_server_cpu_s", "child_cpu_s"),
}


@pytest.fixture(autouse=True)
def collected_as_before() -> Iterator[None]:
    """Benchmarks set how often garbage is collected, as the controller does."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace in the form of the public one: two machines, and tasks for more than their cards."""
    machines = "sn,cpu_milli,memory_mib,gpu,model\nm1,64000,262144,2,V100\nm2,64000,262144,2,V100\n"
    tasks = "".join(f"1000,1024,1,{milli},\n" for milli in (500, 300, 400, 600))
    tasks = f"cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{tasks}"
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(machines)
    (tmp_path / "openb_pod_list_small.csv").write_text(tasks)
    return tmp_path


def test_each_has_a_small_size():
    assert set(SMALL) == set(NAMES)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["decide", "--nodes=0"], "argument --nodes: found 0; write at least 1"),
        (["decide", "--shapes=0"], "argument --shapes: found 0; write at least 1"),
        (["decide", "--decisions=-1"], "argument --decisions: found -1; write at least 0"),
        (["place", "--in-flight=-1"], "argument --in-flight: found -1; write at least 0"),
    ],
)
def test_a_number_that_would_measure_nothing_is_rejected(options, problem, capsys):
    with pytest.raises(SystemExit):
        main(options)
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(("name", "options"), [(name, one) for name, many in SMALL.items() for one in many])
def test_it_measures_something(name, options, trace, capsys):
    if name == "scale":
        binaries_or_skip()
    if name == "web":
        required()
    assert main([name, *options.format(trace=trace).split()]) == 0
    lines: list[Any] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    figures = {line["metric"]: line["value"] for line in lines}
    assert len(figures) == len(lines) >= 3
    assert all(line["bench"] == name for line in lines)
    assert {metric for metric, value in figures.items() if not 0 < value < inf} <= MAY_BE_NOTHING
