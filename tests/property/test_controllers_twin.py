"""A small part of `scripts/twin --controllers`, and proof that it finds what is broken."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from sandbox.demo.processes import clean_environ
from tests.support.twin.directed import SCHEDULES

# How long it takes is the machine's: what it may cost is bounded by `--operations`.
pytestmark = pytest.mark.timeout(0)

ROOT = Path(__file__).parents[2]
# Breaks the product before anything runs: what must then be found, in which life.
BROKEN = {
    "a Binding names no version": (
        "bind = kube.calls.Calls.bind\n"
        "kube.calls.Calls.bind = lambda *args, **more: bind(*args, **{**more, 'resource_version': ''})",
        ["a late Binding of a killed leader"],
        {"oversold"},
    ),
    "a lock of a served pod is dropped at once": (
        "core.hami_lock._holds = lambda owner, pods, *more: False",
        ["a crowd of HAMi's"],
        {"lost", "swapped"},
    ),
    "a proxy's page is taken for the API server's answer": (
        "kube.transport.Response.check_kind = lambda self, verb, path: None",
        ["a proxy answers"],
        {"forgotten"},
    ),
    "nobody is told": (
        "controller.reporting.status.StatusWriter._saying_of = lambda self, entry: None",
        ["0"],
        {"forgotten", "untold"},
    ),
    "members of a group are placed one by one": (
        "controller.deciding.gang.Gangs._gang = lambda self, key, one=None: None",
        ["a group lacks a member"],
        {"lonely"},
    ),
    "scheduling gates are not seen": (
        "core.model.Pod.gated = property(lambda self: False)",
        ["0"],
        {"gated"},
    ),
    "limits of queues are not enforced": (
        "controller.grouping.budgets.Budgets.limits = lambda self, spender: ()",
        ["queues 1"],
        {"overspent"},
    ),
    "quotas of namespaces are not enforced": (
        "controller.grouping.budgets.Quotas.of = lambda self, namespace: {}",
        ["6", "7"],
        {"overspent"},
    ),
    "versions that went back are not seen": (
        "kube.reflector.is_newer = lambda version, than: False\nkube.reflector._Last = lambda line, before: None",
        ["etcd restored, with another quota"],
        {"forgotten"},
    ),
    "versions that were reached again by other changes are not seen": (
        "kube.reflector._Last = lambda line, before: None",
        ["etcd restored, and as much changed again"],
        {"forgotten"},
    ),
    "what was promised to a Workload of Kueue is free for the next": (
        "controller.kueue.asking.KueueObjects.promised = lambda self, now_s: []",
        ["12", "13"],
        {"overpromised"},
    ),
    "checks of others are answered too": (
        "answered = core.kueue.answered\n"
        "controller.kueue.checks.answered = "
        "lambda workload, names, *more: answered(workload, [one.name for one in workload.checks], *more)",
        ["3"],
        {"meddled"},
    ),
    "two pods get one slice of a card": (
        "core.sharing.slices.is_free = lambda place, used: True\ncore.sharing.slices.conflicting = lambda used: False",
        [f"slices {number}" for number in (0, 2)],
        {"oversold"},
    ),
    "a claim's volume may be on another node": (
        "core.constraints.volumes._reaches = lambda *more: True",
        ["volumes 0"],
        {"unreachable"},
    ),
    "CPU is not counted": (
        "core.model._compared = lambda name: name == 'pods' or '/' in name",
        ["neighbours 0"],
        {"crowded"},
    ),
    "labels of nodes are not compared": (
        "every = core.constraints.every\n"
        "every.NODE_AFFINITY = dataclasses.replace("
        "every.NODE_AFFINITY, filter=lambda *more: True, explain=lambda *more: iter(()))",
        ["labels 0"],
        {"misplaced"},
    ),
    "a register is read once": (
        "alike = core.ledger.offers_alike\n"
        "core.ledger.offers_alike = lambda before, node: "
        "alike(before, node) or 'volcano.sh/node-vgpu-register' in before.annotations",
        ["a plugin registers otherwise"],
        {"oversold", "lost", "forgotten"},
    ),
    "cards of ResourceClaims are free": (
        "core.ledger.closed_by_claims = lambda *more: core.constraints.resource_claims.Claimed()",
        ["drivers 3"],
        {"claimed"},
    ),
    "edits of groups are not seen": (
        "asked = controller.grouping.groups.Groups.changed\n"
        "controller.grouping.groups.Groups.changed = "
        "lambda self, spec: None if spec.key in self._specs else asked(self, spec)",
        [f"groups {number}" for number in (1, 2)],
        {"forgotten"},
    ),
    "why a group waits is not written": (
        "controller.acting.group_writes._wanted = lambda *args: None",
        [f"groups {number}" for number in (0,)],
        {"forgotten"},
    ),
    "a refused pod is never retried": (
        "refused = controller.deciding.bind.Outcomes.refused\n"
        "controller.deciding.bind.Outcomes.refused = "
        "lambda *args, **more: refused(*args, **{**more, 'rest_s': 1e9})",
        ["a Binding is refused"],
        {"forgotten"},
    ),
    "unhealthy cards are used": (
        "fault = core.dialects.vgpu.cards._fault\n"
        "core.dialects.vgpu.cards._fault = lambda record, *more: fault(record._replace(healthy=True), *more)",
        ["a card is replaced"],
        {"unhealthy"},
    ),
    "pods are evicted though preemption is off": (
        "controller.deciding.preempt.Preempting.is_on = property(lambda self: True)",
        ["preemption is off"],
        {"unjust"},
    ),
    "pods that wait for their turn evict others": (
        "asked = controller.deciding.cluster.ClusterState._standing_of\n"
        "controller.deciding.cluster.ClusterState._standing_of = "
        "lambda self, pod: asked(self, pod)._replace(preempts=True)",
        ["a pod of a higher priority does not preempt"],
        {"unjust"},
    ),
    "a card with the index of another is the same": (
        "alike = core.ledger.offers_alike\n"
        "register = 'volcano.sh/node-vgpu-register'\n"
        "core.ledger.offers_alike = lambda before, node: alike(before, node) or 0 < "
        "before.annotations.get(register, '').count(':') == node.annotations.get(register, '').count(':')",
        ["a card is replaced"],
        {"unhealthy", "oversold", "forgotten"},
    ),
    "an edit of the unit of memory is not heeded": (
        "spec = core.dialects.vgpu.dialect.DIALECT\n"
        "scaling = spec.scaling._replace(rescaled=lambda assignment, since, now: (now, assignment, ''))\n"
        "object.__setattr__(spec, 'scaling', scaling)",
        ["the unit of memory is edited"],
        {"oversold"},
    ),
    "the template of a pod follows from its memory": (
        "core.dialects.ascend_hami.pods._cut_of = lambda chip, written, memory: "
        "core.dialects.ascend_hami.pods.trim(chip, memory)",
        ["templates are edited"],
        {"forgotten"},
    ),
    "Workloads of Kueue get no answer": (
        "async def none(self): return 0.0\ncontroller.kueue.checks.AdmissionChecks.look = none",
        ["an answer to Kueue is lost"],
        {"forgotten"},
    ),
}


# Runs what is asked for, each in a fork: to import the product takes longer than most lives.
FORKS = """
import gc, json, os, sys
freeze = gc.freeze
from tests.support.twin import clock; clock.install()
import dataclasses
import core.constraints.every, core.constraints.resource_claims, core.constraints.volumes
import core.hami_lock, core.kueue, core.ledger, core.model, core.sharing.slices
import kube.calls, kube.reflector, kube.transport
import controller.deciding.scheduler, controller.deciding.cluster, controller.deciding.preempt
import core.dialects.ascend_hami.pods, core.dialects.vgpu.cards, core.dialects.vgpu.dialect
import controller.deciding.gang, controller.grouping.budgets, controller.acting.group_writes
import controller.kueue.checks, controller.reporting.status
from tests.support.twin.run import main
freeze()
for line in sys.stdin:
    breaks, arguments, told = json.loads(line)
    pid = os.fork()
    if not pid:
        output = os.open(told, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        exec(breaks, globals())
        raise SystemExit(main(arguments))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@cache
def forks(*, interpreted):
    """The process that forks. What is broken of core is heeded by one that is interpreted."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)} if interpreted else clean_environ(os.environ)
    started = subprocess.Popen(
        [sys.executable, "-c", FORKS],
        cwd=ROOT,
        env={**environ, "PYTHONHASHSEED": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(started.communicate)
    return started


def twin(*arguments, breaks="", interpreted=False):
    """The exit status and what is told."""
    asked = forks(interpreted=interpreted or bool(breaks))
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        asked.stdin.write(json.dumps([breaks, arguments, str(told)]) + "\n")
        asked.stdin.flush()
        status = asked.stdout.readline()
        return int(status), told.read_text()


def lives(names):
    return [word for name in names for word in ("--life", name)]


def test_whole_controllers_break_no_promise_in_any_schedule_or_in_a_storm():
    names = [*SCHEDULES, "0", "gale 0"]
    status, told = twin("--operations", "36000", *lives(names))
    assert status == 0, told
    assert f"operations in {len(names)} lives" in told


def test_whole_controllers_break_no_promise_in_a_cluster_with_more_than_cards():
    status, told = twin("--operations", "900", "--life", "drivers 0")
    assert status == 0, told


def test_a_seed_tells_the_same_in_each_process_and_on_either_core():
    asked = ("--operations", "700", "--life", "2", "--without", "force,restore")
    told = [twin(*asked, interpreted=one)[1].splitlines()[:-1] for one in (False, True)]
    assert told[0] == told[1]


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name):
    breaks, where, kinds = BROKEN[name]
    status, told = twin("--operations", "8000", *lives(where), "--without", "force,restore", breaks=breaks)
    assert status == 1, told
    assert any(line.startswith(tuple(f"{kind}: seed 1" for kind in kinds)) for line in told.splitlines()), told
