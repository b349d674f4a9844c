"""What the core promises of a chip, the device plugin's driver can cut, in whatever order kubelet admits the pods."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.mindcluster.chips import Assignment, Share
from core.dialects.mindcluster.dialect import MindCluster
from core.model import NodeName
from core.port.handoff import Stamp
from core.settings import Policy, Tables
from sandbox.players import mindcluster_protocol as protocol
from tests.support.devices.mindcluster import npu_bound, npu_chips, npu_node, npu_pod

DIALECT: Any = MindCluster()
asked = st.sampled_from(
    [
        (1, None, None),
        (2, None, None),
        (2, None, "high"),
        (4, None, None),
        (4, None, "high"),
        (4, "yes", None),
        (4, "no", None),
        (8, None, None),
        (16, None, None),
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from("adadade"), asked, st.integers(0, 99)), min_size=8, max_size=40),
)
def test_every_promise_can_be_cut_also_where_the_plugin_swaps_pods(chips, steps):
    cards = npu_chips(npu_node(chips))
    # Promised and not admitted yet: (AI cores, what is written, assignment); then what each pod really has.
    waiting: list[tuple[int, str, Assignment]] = []
    running: list[tuple[Assignment, list[protocol.Device]]] = []
    for number, (step, what, pick) in enumerate(steps):
        if step == "a":
            placed = DIALECT.place(cards, DIALECT.request(npu_pod(*what), Tables()), Policy.BINPACK)
            if placed is not None:
                cards = DIALECT.take(cards, placed.assignment)
                stamp = Stamp(node=NodeName("node-a"), now_s=1, order=number + 1)
                text = DIALECT.annotations(placed.assignment, stamp, Tables())["huawei.com/npu-core"]
                waiting.append((what[0], text, placed.assignment))
        elif step == "d" and waiting:
            # Kubelet admits any of those that wait; the plugin serves the oldest of as many cores.
            admitted = waiting[pick % len(waiting)]
            served = next(one for one in waiting if one[0] == admitted[0])
            devices = [device for _, made in running for device in made]
            read = protocol.decode(served[1])
            assert read is not None
            made = protocol.cut(devices, read, range(chips), 8, 100 + number)
            # The one admitted reports what it got; the other waits on, with what was written for it used up.
            swapped = [one for one in waiting if one is not admitted]
            if served is not admitted:
                swapped[swapped.index(served)] = (served[0], admitted[1], admitted[2])
            waiting = swapped
            report = DIALECT.held(npu_bound(admitted[1], protocol.real_names(made)), (), Tables())
            assert report is not None
            cards = DIALECT.take(DIALECT.give_back(cards, served[2]), report.assignment)
            running.append((report.assignment, made))
        elif step == "e" and running:
            assignment, _ = running.pop(pick % len(running))
            cards = DIALECT.give_back(cards, assignment)
        assert DIALECT.overcommitted(cards) == ()
        _same_as_the_driver(cards, running)


def _same_as_the_driver(cards, running) -> None:
    """What the core counts as reported on each chip is what the driver has cut there."""
    for one in cards:
        ours = sorted(share.template for share in one.shares if share.settled)
        made = sorted(device.template for _, devices in running for device in devices if device.chip == one.fixed.id)
        assert ours == made


def test_a_share_that_is_not_reported_is_never_taken_for_one_that_is():
    cards = DIALECT.take(npu_chips(npu_node(1)), Assignment((0,), Share("vir01")))
    assert DIALECT.place(cards, DIALECT.request(npu_pod(1), Tables()), Policy.BINPACK) is None
