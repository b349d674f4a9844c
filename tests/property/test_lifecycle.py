"""Pods under a network that loses, repeats and delays what it likes: nothing is sold twice, nothing is forgotten."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from controller.actions import Bind, Clear, Fence, ReadPod
from controller.deciding.lifecycle import Stage
from core.model import Phase, PodUid
from core.settings import Settings
from core.waiting import Cause, Wait
from tests.support.servers.twin_api import DEVICES, RefusedError, Request, TwinApi
from tests.support.worlds.world import MEMORY, World, node, pod

TOTAL = 1000
NODES = ("n1",)
# What is on no node of ours: somebody else's choice.
ELSEWHERE = "elsewhere"
FATES = (
    "goes well",
    "is repeated",
    "is written and the answer lost",
    "is lost",
    "comes late",
    "comes late",
    "is throttled",
    "is forbidden",
)
BOTH, OURS = ("cardshare", "volcano"), ("cardshare",)
SCRIPTS = 120
# step -> how often it is taken.
STEPS = {
    "works": 14,
    "a_call_meets_its_fate": 14,
    "late_calls_come": 4,
    "an_answer_arrives": 4,
    "creates": 1,
    "deletes": 1,
    "edits": 2,
    "somebody_else_binds": 1,
    "kubelet_runs": 2,
    "mirror_shows": 1,
    "mirror_repeats": 2,
    "mirror_shows_too_early": 1,
    "mirror_lists": 1,
    "names_change": 1,
}
PICKS = tuple(range(60))
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "works": {"seconds": (0.0, 0.3, 2.0, 70.0), "mirror": (True,) * 4 + (False,), "others": (True,) * 4 + (False,)},
    "a_call_meets_its_fate": {"pick": PICKS, "fate": FATES},
    "late_calls_come": {},
    "an_answer_arrives": {"pick": PICKS},
    "creates": {"memory": (400, 700, 1000, 2000), "ours": (True, True, False)},
    "deletes": {"pick": PICKS},
    "edits": {"pick": PICKS, "asks_more": (True, False)},
    "somebody_else_binds": {"pick": PICKS},
    "kubelet_runs": {"pick": PICKS, "phase": (Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED)},
    "mirror_shows": {"events": (1, 2, 3, 4, 5)},
    "mirror_repeats": {"pick": PICKS},
    "mirror_shows_too_early": {"pick": PICKS},
    "mirror_lists": {},
    "names_change": {"names": (BOTH, OURS)},
}


class PodLives:
    """The controller's scheduler beside a twin of the API server, and between them a network."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = BOTH
        self.world = World(
            *(node(name, cards=1, memory=TOTAL) for name in NODES),
            node(ELSEWHERE, cards=0),
            scheduler_names=BOTH,
        )
        self.scheduler = self.world.scheduler
        self.api = TwinApi({f"{name}-0": TOTAL for name in NODES})
        self.made = 0
        self.shown = 0  # events that the mirror has shown
        self.flying: list[Request] = []
        self.late: list[Request] = []  # given up by the controller, and not by the network
        self.answers: list[Callable[[], None]] = []

    # ------------------------------------------------------------------ the cluster

    def begins(self, memory: int) -> None:
        """With two pods of which one fits."""
        self.creates(memory, ours=True)
        self.creates(memory, ours=True)

    def creates(self, memory: int, ours: bool) -> None:
        self.made += 1
        made = pod(f"p{self.made}", memory=memory, scheduler_name="cardshare" if ours else "volcano")
        self.api.write(made)

    def deletes(self, pick: int) -> None:
        self.api.delete(self._one(pick).uid)

    def edits(self, pick: int, asks_more: bool) -> None:
        one = self._one(pick)
        if asks_more and not one.node_name:
            limits = {**one.containers[0].limits, MEMORY: "900"}
            self.api.write(one, containers=(one.containers[0]._replace(limits=limits, requests=limits),))
        else:
            self.api.write(one, labels={**one.labels, "edit": str(self.api.revision)})

    def somebody_else_binds(self, pick: int) -> None:
        one = self._one(pick)
        if not one.node_name and not one.deleting:
            self.api.write(one, node_name=ELSEWHERE)

    def kubelet_runs(self, pick: int, phase: Phase) -> None:
        self._run(self._one(pick), phase)

    def _run(self, one, phase=Phase.RUNNING) -> None:
        if one.node_name and not one.finished:
            notes = {**one.annotations}
            if DEVICES in notes:
                notes |= {DEVICES: "", "volcano.sh/bind-phase": "success"}
            self.api.write(one, annotations=notes, started=True, phase=phase)

    def _one(self, pick: int):
        pods = list(self.api.pods.values())
        return pods[pick % len(pods)]

    # ------------------------------------------------------------------ the mirror

    def mirror_shows(self, events: int) -> None:
        for kind, value in self.api.events[self.shown : self.shown + events]:
            self.shown += 1
            self._show(kind, value)

    def mirror_repeats(self, pick: int) -> None:
        """What was shown long ago is shown again, as a mirror that lags behind direct reads would."""
        kind, value = self.api.events[pick % self.shown]
        last = [one for one, other in self.api.events[: self.shown] if other.uid == value.uid][-1]
        if last != "DELETED":
            self._show(kind, value)

    def mirror_shows_too_early(self, pick: int) -> None:
        kind, value = self.api.events[self.shown + pick % (len(self.api.events) - self.shown)]
        if kind != "DELETED":
            self._show(kind, value)

    def mirror_lists(self) -> None:
        self.shown = len(self.api.events)
        for _ in self.scheduler.pods_replaced(tuple(self.api.pods.values())):
            pass

    def _show(self, kind: str, value) -> None:
        if kind == "DELETED":
            self.scheduler.pod_gone(value.uid)
        else:
            self.scheduler.pod_changed(value)

    # ------------------------------------------------------------------ the controller and its calls

    def works(self, seconds: float, mirror: bool, others: bool) -> None:
        """Time passes; all but the Bindings goes well, where the mirror follows and *others* are not lost."""
        for _ in range(3):
            if mirror and self.shown < len(self.api.events):
                self.mirror_shows(len(self.api.events))
            self._plan(seconds)
            for call in [call for call in self.flying if call.what != "bind"] if others else ():
                self.flying.remove(call)
                self._answer(call, self._executed(call))

    def _plan(self, seconds: float) -> None:
        self.world.passes(seconds)
        for action in self.world.actions(Bind, Fence, ReadPod, Clear):
            call = Request(what=action.__class__.__name__.lower(), uid=action.pod.uid, name=action.pod.name)
            match action:
                case Bind():
                    call.version, call.node, call.annotations = action.version, action.node, dict(action.annotations)
                    call.attempt = action.attempt
                case Fence():
                    call.version, call.text, call.attempt = action.version, action.wait.message, action.attempt
                case ReadPod():
                    call.what, call.attempt = "read", action.attempt
                case Clear():
                    call.annotations = dict(action.annotations)
            self.flying.append(call)

    def a_call_meets_its_fate(self, pick: int, fate: str) -> None:
        call = self.flying.pop(pick % len(self.flying))
        if call.what in ("read", "clear"):  # made again until they are answered
            found = self._executed(call)
            self.answers.append(lambda: self._answer(call, found))
        elif fate in ("goes well", "is repeated"):
            if fate == "is repeated":  # by a proxy, which hands on the last answer
                self._executed(call)
            found = self._executed(call)
            self.answers.append(lambda: self._answer(call, found))
        elif fate == "is written and the answer lost":
            self._executed(call)
            self._lose(call)
        elif fate == "is lost":
            self._lose(call)
        elif fate == "comes late":
            self._lose(call)
            self.late.append(call)
        elif call.what == "bind":
            wait = Wait(Cause.BINDING_REFUSED, "forbidden") if fate == "is forbidden" else None
            self.scheduler.outcomes.refused(call.uid, call.attempt, rest_s=1.0, wait=wait)
        else:
            self.scheduler.outcomes.not_fenced(call.uid, call.attempt)

    def late_calls_come(self) -> None:
        while self.late:
            self._executed(self.late.pop())
            self.no_card_is_over_its_total()

    def an_answer_arrives(self, pick: int) -> None:
        self.answers.pop(pick % len(self.answers))()

    def _executed(self, call: Request):
        try:
            return self.api.execute(call)
        except RefusedError as e:
            return e

    def _lose(self, call: Request) -> None:
        if call.what == "bind":
            self.scheduler.outcomes.lost(call.uid, call.attempt, "no answer")
        else:
            self.scheduler.outcomes.not_fenced(call.uid, call.attempt)

    def _answer(self, call: Request, found) -> None:
        match call.what, found:
            case "bind", RefusedError():
                self.scheduler.outcomes.contradicted(call.uid, call.attempt)
            case "bind", _:
                self.scheduler.outcomes.bound(call.uid, call.attempt)
            case "fence", RefusedError():
                self.scheduler.outcomes.not_fenced(call.uid, call.attempt)
            case "fence", _:
                self.scheduler.fenced(call.uid, call.attempt, found)
            case "read", _:
                self.scheduler.pod_read(call.uid, call.attempt, None if isinstance(found, RefusedError) else found)
            case _:
                self.scheduler.cleared(PodUid(call.uid), done=True)

    # ------------------------------------------------------------------ configuration

    def names_change(self, names: tuple[str, ...]) -> None:
        self.names = names
        for _ in self.scheduler.configure(self.world.ledger.tables, Settings(scheduler_names=names)):
            pass

    # ------------------------------------------------------------------ what must hold

    def no_card_is_over_its_total(self) -> None:
        assert self.api.oversold() == {}

    def what_is_in_flight_is_what_the_stages_say(self) -> None:
        life = self.scheduler.cluster.queue
        counted = {stage: sum(1 for entry in life if entry.stage is stage) for stage in Stage}
        assert dict(life.counts()) == counted
        open_ = {entry.pod.uid for entry in life if self.scheduler.cluster.sent.state(entry.pod.uid) is not None}
        assert len(self.scheduler.cluster.sent) == len(open_)
        assert open_ <= {entry.pod.uid for entry in life if entry.stage in (Stage.BINDING, Stage.SETTLING)}

    def ends(self) -> None:
        """The network heals; calls that were given up come still, or never."""
        quiet = 0
        while (
            quiet < 20 or self.scheduler.cluster.handoff.waiting
        ):  # of 30 s each; a line behind a deleted pod takes longer
            at = self.api.revision
            self.mirror_shows(len(self.api.events))
            while self.flying:
                call = self.flying.pop(0)
                self._answer(call, self._executed(call))
                self.no_card_is_over_its_total()
            while self.answers:
                self.answers.pop(0)()
            for one in list(self.api.pods.values()):
                if one.annotations.get(DEVICES) and not one.finished:
                    self._run(one)
            self._plan(30.0)
            quiet = quiet + 1 if self.api.revision == at and not self.flying else 0
            assert self.world.now_s < 100_000.0, "it never comes to rest"
        self.late_calls_come()
        self.mirror_shows(len(self.api.events))
        self._nothing_is_forgotten()

    def _nothing_is_forgotten(self) -> None:
        scheduler, ledger = self.scheduler, self.world.ledger
        assert len(scheduler.cluster.sent) == 0
        assert scheduler.cluster.handoff.in_flight == 0
        for one in self.api.pods.values():
            entry = scheduler.cluster.queue.get(one.uid)
            if one.node_name or one.finished or one.scheduler_name not in self.names:
                assert entry is None, one
            else:
                assert entry is not None, one
                assert entry.stage is Stage.REFUSED, (one, entry)
                assert int(one.containers[0].limits[MEMORY]) > self.api.free(), one
        for name in NODES:
            here = {one.uid for one in self.api.pods.values() if one.node_name == name and not one.finished}
            assert set(ledger.holders(node(name).name)) == here


def play(seed: int) -> None:
    """One script of steps, each with its own chance; what was done is told of one that fails."""
    dice, lives, done = random.Random(seed), PodLives(), []
    lives.begins(dice.choice([700, 1000]))
    for step in dice.choices(list(STEPS), list(STEPS.values()), k=40):
        ready = {
            "a_call_meets_its_fate": lives.flying,
            "late_calls_come": lives.late,
            "an_answer_arrives": lives.answers,
            "mirror_shows": lives.shown < len(lives.api.events),
            "mirror_shows_too_early": lives.shown < len(lives.api.events),
            "mirror_repeats": lives.shown,
        }
        if not ready.get(step, lives.api.pods or step in ("creates", "works")):
            continue
        chosen = {name: dice.choice(values) for name, values in CHOICES[step].items()}
        done.append((step, chosen))
        try:
            getattr(lives, step)(**chosen)
            lives.no_card_is_over_its_total()
            lives.what_is_in_flight_is_what_the_stages_say()
        except Exception as e:
            raise AssertionError(f"seed {seed}: {done}") from e
    try:
        lives.ends()
    except Exception as e:
        raise AssertionError(f"seed {seed}: {done}, at the end") from e


@pytest.mark.parametrize("block", range(4))
def test_nothing_is_sold_twice_and_nothing_forgotten_whatever_the_network_does(block):
    for seed in range(block * SCRIPTS, (block + 1) * SCRIPTS):
        play(seed)
