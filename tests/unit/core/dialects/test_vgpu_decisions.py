"""What the vGPU dialect decides, counts and says, where the worked examples do not look."""

from typing import Any

import pytest

from core.dialects.vgpu import keys
from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.pods import readable_request
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.model import Container, Node, NodeName, PodUid
from core.names import VGPU_REGISTER
from core.port.cards import CardShare, Offer
from core.port.handoff import Progress, Stamp
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.settings import Policy, Tables
from core.sharing.request import Request
from tests.support.devices.cards import A100, TABLES, bound, container, offered, pod, record, vgpu_node

# What a dialect answers is its own; tests look inside as the port's other users may not.
VGPU: Any = Vgpu()
V0, V1 = record("GPU-v0"), record("GPU-v1")


def ask(*containers: Container, **fields) -> Request:
    found = VGPU.request(pod(*containers, **fields), TABLES)
    assert isinstance(found, Request), found
    return found


def wish(**annotations: str) -> Request:
    return ask(container(number=1, memory=100), annotations=annotations)


def hold(cards, *pods):
    for one in pods:
        held = VGPU.held(one, cards, TABLES)
        assert held is not None
        cards = VGPU.take(cards, held.assignment)
    return cards


def chosen(cards, request, policy=Policy.BINPACK) -> list[str] | None:
    placed = VGPU.place(cards, request, policy)
    return None if placed is None else [entry.uuid for entry in placed.assignment.entries]


def codes(*containers: Container, **fields) -> list[str]:
    found = VGPU.request(pod(*containers, **fields), TABLES)
    assert isinstance(found, tuple)
    return [one.code for one in found if isinstance(one, Violation)]


# ------------------------------------------------------------------ nodes


def test_a_node_without_a_register_does_not_speak_the_protocol():
    assert VGPU.offer(Node(name=NodeName("n")), TABLES) is None


def test_a_node_whose_resources_are_gone_is_a_complaint():
    node = Node(name=NodeName("n"), annotations={VGPU_REGISTER: V0}, allocatable={"volcano.sh/vgpu-number": "0"})
    found = VGPU.offer(node, TABLES)
    assert isinstance(found, Complaint)
    assert "volcano.sh/vgpu-number" in found.field


@pytest.mark.parametrize(
    ("register", "more", "is_served"),
    [
        pytest.param("GPU-0,10,15360,NVIDIA-Tesla T4,false:", {}, True, id="as v1.9 writes it"),
        pytest.param("GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:", {}, False, id="of a later plugin"),
        pytest.param(
            "GPU-0,10,15360,NVIDIA-Tesla T4,false:GPU-1,10,15360,NVIDIA-Tesla T4,true,hami-core:", {}, False, id="both"
        ),
        pytest.param("GPU-0,10,15360,NVIDIA-Tesla T4,false:", {"volcano.sh/vgpu-memory": "0"}, False, id="it is gone"),
        pytest.param("GPU-0,10,15360,NVIDIA-Tesla T4,false:", {"volcano.sh/vgpu-cores": "100"}, False, id="one of two"),
        pytest.param("GPU-0,10,15360,NVIDIA-Tesla T4,false:", {"volcano.sh/vgpu-number": "0"}, False, id="no number"),
    ],
)
def test_a_plugin_that_advertises_the_number_alone_is_served(register, more, is_served):
    amounts = {"volcano.sh/vgpu-number": "10", **more}
    node = Node(name=NodeName("n"), annotations={VGPU_REGISTER: register}, allocatable=amounts)
    found = VGPU.offer(node, TABLES)
    if is_served:
        assert isinstance(found, Offer)
        assert [(card.fixed.memory, card.fixed.fault) for card in found.cards] == [(15360, None)]
    else:
        assert isinstance(found, Complaint)
        assert "allocatable" in found.field


def test_resources_go_by_their_configured_names():
    table = VgpuTable(named=VgpuTable().named._replace(cards="x.io/n", memory="x.io/m", cores="x.io/c"))
    assert isinstance(VGPU.offer(vgpu_node(V0, table), Tables(sections=(table,))), Offer)
    assert isinstance(VGPU.offer(vgpu_node(V0), Tables(sections=(table,))), Complaint)


@pytest.mark.parametrize(
    ("register", "reason"),
    [
        pytest.param(record("GPU-a", healthy=False), Reason.UNHEALTHY, id="unhealthy"),
        pytest.param(record("GPU-a", memory=0), Reason.UNUSABLE, id="no memory"),
        pytest.param(record("GPU-a", model="MLU370"), Reason.UNUSABLE, id="not of NVIDIA"),
        pytest.param(record("GPU-a", mode="mig"), Reason.UNUSABLE, id="mig without a geometry"),
        pytest.param(record(""), Reason.UNUSABLE, id="no uuid"),
        pytest.param(record("GPU-a", mode="mig", model=A100) + V1, Reason.MODE, id="another mode than the node"),
    ],
)
def test_a_card_that_cannot_be_used_says_why(register, reason):
    card = offered(register)[0]
    assert card.fixed.fault is reason
    (shortfall, *_) = [s for s in VGPU.shortfalls((card,), wish()) if s.card == card.fixed.uuid and s.reason is reason]
    assert shortfall.detail


def test_a_card_named_twice_is_sold_once():
    first, second = offered(V0 + V0)
    assert (first.fixed.fault, second.fixed.fault) == (None, Reason.UNUSABLE)


# ------------------------------------------------------------------ requests


def test_a_pod_that_asks_for_nothing_is_nobodys():
    assert VGPU.request(pod(Container(name="c", limits={"cpu": "1"})), TABLES) is None
    assert VGPU.request(pod(container(number=0)), TABLES) is None


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"number": "1.5"}, "CS101"),
        ({"number": 1, "memory": "3Gi"}, "CS101"),
        ({"number": "1e1000000"}, "CS101"),
        ({"number": 1, "percent": 0}, "CS102"),
        ({"number": 1, "percent": 101}, "CS102"),
        ({"number": 1, "cores": 150}, "CS103"),
        ({"memory": 5}, "CS203"),
        ({"cores": 5}, "CS203"),
    ],
)
def test_figures_that_cannot_be_served_are_refused(limits, code):
    assert codes(container(**limits)) == [code]


def test_init_containers_with_cards_are_refused():
    one = container("a", number=1)
    assert codes(one, init_containers=(container("i", number=1),)) == ["CS205"]
    assert codes(init_containers=(container("i", number=1),)) == ["CS205"]


def test_a_mode_is_one_of_three_words_or_left_to_the_scheduler():
    assert codes(container(number=1), annotations={keys.MODE: "hami-cor"}) == ["CS104"]
    assert wish(**{keys.MODE: " "}).modes == ()
    assert wish(**{keys.MODE: "mps"}).modes == ("mps",)


def test_every_mistake_is_told_not_only_the_first():
    found = codes(container(number="x", cores=101), annotations={keys.MODE: "y", "cardshare.io/gpu-index": "z"})
    assert sorted(found) == ["CS101", "CS103", "CS104", "CS105"]


def test_a_limit_wins_over_a_request_and_a_percentage_over_memory():
    both = Container(
        name="c",
        limits={"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "5"},
        requests={"volcano.sh/vgpu-memory": "7", "volcano.sh/vgpu-memory-percentage": "50"},
    )
    (found,) = ask(both).asks
    assert (found.memory, found.percent) == (0, 50)


# ------------------------------------------------------------------ placing


def test_positions_are_wished_and_avoided():
    cards = offered(V0 + V1)
    assert chosen(cards, wish(**{"cardshare.io/gpu-index": "1"})) == ["GPU-v1"]
    assert chosen(cards, wish(**{"cardshare.io/avoid-cards": "0"})) == ["GPU-v1"]
    assert chosen(cards, wish(**{"cardshare.io/avoid-cards": "GPU-v0"})) == ["GPU-v1"]
    assert chosen(cards, wish(**{"cardshare.io/gpu-index": "5"})) is None


def test_a_position_means_nothing_on_a_node_that_changes_its_order():
    offer = VGPU.offer(vgpu_node(V0, more={keys.HANDSHAKE: "Reported x"}), TABLES)
    assert isinstance(offer, Offer)
    request = wish(**{"cardshare.io/gpu-index": "0"})
    assert VGPU.place(offer.cards, request, Policy.BINPACK) is None
    (found,) = VGPU.shortfalls(offer.cards, request)
    assert found.reason is Reason.UNORDERED
    assert keys.USE_UUID in found.detail


def test_mps_is_placed_where_the_register_says_so_and_limited_as_hami_core():
    cards = offered(record("GPU-m", mode="mps"))
    assert chosen(cards, wish(**{keys.MODE: "mps"})) == ["GPU-m"]
    assert chosen(cards, wish(**{keys.MODE: "hami-core"})) == ["GPU-m"]
    assert chosen(cards, wish(**{keys.MODE: "mig"})) is None
    assert chosen(offered(V0), wish(**{keys.MODE: "mps"})) is None


def test_a_percentage_never_comes_to_nothing():
    placed = VGPU.place(offered(record("GPU-a", memory=24)), ask(container(number=1, percent=1)), Policy.BINPACK)
    assert placed is not None
    assert placed.assignment.entries[0].memory == 1


def test_shortfalls_name_every_card_and_what_it_lacked():
    cards = hold(
        offered(V0 + V1 + record("GPU-s", healthy=False) + record("GPU-f", slots=1)),
        bound("GPU-v0,NVIDIA,30000,0:"),
        bound("GPU-v1,NVIDIA,1000,80:"),
        bound("GPU-f,NVIDIA,1,0:"),
    )
    found = VGPU.shortfalls(cards, ask(container(number=1, memory=8192, cores=40)))
    assert [one for one in found if one.card] == [
        Shortfall("GPU-v0", Reason.MEMORY, 8192, 2768, "MiB"),
        Shortfall("GPU-v1", Reason.CORES, 40, 20, "%"),
        Shortfall("GPU-s", Reason.UNHEALTHY, detail="the device plugin says that it is unhealthy"),
        Shortfall("GPU-f", Reason.SLOTS, 1, 0, "shares"),
    ]


def test_shortfalls_are_told_in_mib_whatever_the_registers_unit():
    tables = Tables(sections=(VgpuTable(named=VgpuTable().named._replace(mib_per_unit=10)),))
    cards = offered(record("GPU-a", memory=3276), tables)
    request = VGPU.request(pod(container(number=1, memory=4000)), tables)
    assert VGPU.shortfalls(cards, request) == (Shortfall("GPU-a", Reason.MEMORY, 40000, 32760, "MiB", mib_per_unit=10),)


def test_pods_of_one_rule_keep_off_each_others_cards_and_others_do_not():
    tables = Tables(sections=(ExclusiveRules(rules=(frozenset({("w", "t")}),)),))
    request = readable_request(pod(container(number=1, memory=1), labels={"w": "t"}), tables)
    free = readable_request(pod(container(number=1, memory=1)), tables)
    placed = VGPU.place(offered(V0), request, Policy.BINPACK)
    assert placed is not None
    cards = VGPU.take(offered(V0), placed.assignment)
    assert VGPU.place(cards, request, Policy.BINPACK) is None
    assert VGPU.shortfalls(cards, request)[0].reason is Reason.RULE
    assert VGPU.place(cards, free, Policy.BINPACK) is not None
    assert VGPU.give_back(cards, placed.assignment) == offered(V0)


def test_a_larger_slice_than_asked_for_is_told_with_its_profile():
    mig_card = offered(record("GPU-a", model=A100, memory=40960, mode="mig"))
    cards = hold(mig_card, bound("GPU-a[group3-0],NVIDIA,20000,0:"))
    request = ask(container(number=1, memory=3000))
    placed = VGPU.place(cards, request, Policy.BINPACK)
    assert placed is not None
    assert VGPU.describe(placed.assignment, cards) == (
        CardShare("GPU-a[group3-1]", "3000 MiB in a slice of 20480 MiB (3g.20gb)", 20480, None, "GPU-a"),
    )


# ------------------------------------------------------------------ what is held


def test_every_entry_counts_also_twice_on_one_card():
    (card,) = hold(offered(V0), bound("GPU-v0,NVIDIA,2000,10:;GPU-v0,NVIDIA,3000,20:"))
    assert (card.used_slots, card.used_memory, card.used_cores) == (2, 5000, 30)


def test_an_entry_that_names_no_card_of_the_node_closes_it_only_if_it_cannot_be_read():
    cards = offered(V0)
    gone = VGPU.held(bound("GPU-gone,NVIDIA,1,0:"), cards, TABLES)
    assert gone is not None
    assert not gone.closes
    assert VGPU.take(cards, gone.assignment) == cards
    garbage = VGPU.held(bound("GPU-gone,NVIDIA:"), cards, TABLES)
    assert garbage is not None
    assert "default/held" in garbage.closes
    long = VGPU.held(bound("x" * 20_000), cards, TABLES)
    assert long is not None
    assert long.closes


@pytest.mark.parametrize("factor", [1, 10])
def test_queues_and_quotas_count_what_was_asked_in_its_units_and_not_the_slice(factor):
    named = VgpuTable().named._replace(mib_per_unit=factor)
    tables = Tables(sections=(VgpuTable(named=named, geometries=TABLES.of(VgpuTable).geometries),))
    cards = offered(record("GPU-a", model=A100, memory=40960 // factor, mode="mig"), tables=tables)
    request = VGPU.request(pod(container(number=1, memory=6000 // factor, cores=5)), tables)
    placed = VGPU.place(cards, request, Policy.BINPACK)
    assert placed.assignment.charges[0].memory * factor > 6000
    assert VGPU.metered(placed.assignment, tables) == {
        named.memory: 6000 // factor,
        named.cores: placed.assignment.entries[0].cores,
        named.percentage: 0,
    }


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param("GPU-a[group1-0],NVIDIA,1,0:;GPU-a[group2-0],NVIDIA,1,0:", id="two layouts"),
        pytest.param("GPU-a[group1-0],NVIDIA,1,0:;GPU-a[group1-0],NVIDIA,1,0:", id="one slice twice"),
        pytest.param("GPU-a[group1-9],NVIDIA,1,0:", id="position outside the group"),
        pytest.param("GPU-a[groupX-0],NVIDIA,1,0:", id="unknown layout"),
        pytest.param("GPU-a,NVIDIA,1,0:", id="no slice named"),
    ],
)
def test_slices_that_cannot_be_close_a_mig_card_and_are_told(ids):
    cards = hold(offered(record("GPU-a", model=A100, memory=40960, mode="mig")), bound(ids))
    assert VGPU.place(cards, wish(), Policy.BINPACK) is None
    assert VGPU.overcommitted(cards)
    assert VGPU.room(cards).free == []


def test_a_pod_that_holds_nothing_of_this_protocol_is_nobodys():
    assert VGPU.held(pod(), offered(V0), TABLES) is None


def test_overcommitted_cards_are_told_in_numbers():
    (card,) = hold(offered(record("GPU-a", slots=1)), bound("GPU-a,NVIDIA,40000,60:;GPU-a,NVIDIA,1,60:"))
    assert VGPU.overcommitted((card,)) == (
        "GPU-a holds 40001 MiB of 32768 MiB",
        "GPU-a holds 120 % of its 100 % cores",
        "GPU-a holds 2 shares of 1",
    )


def test_cards_that_can_take_nothing_have_no_room():
    cards = hold(
        offered(V0 + V1 + record("GPU-f", slots=1) + record("GPU-s", healthy=False)),
        bound("GPU-v0,NVIDIA,1000,100:"),
        bound("GPU-f,NVIDIA,1,0:"),
    )
    found = VGPU.room(cards)
    assert found.idle == 1
    assert (found.free, found.spare) == ([32768], [100])
    assert found.used_ppm == 1001 * 1_000_000 // (4 * 32768)


# ------------------------------------------------------------------ hand-off


def test_the_binding_carries_the_six_keys():
    placed = VGPU.place(offered(V0), ask(container(number=1, memory=4096, cores=25)), Policy.BINPACK)
    assert placed is not None
    stamp = Stamp(node=NodeName("node-a"), now_s=7, order=9)
    assert VGPU.annotations(placed.assignment, stamp, TABLES) == {
        "volcano.sh/vgpu-node": "node-a",
        "volcano.sh/vgpu-time": "9",
        "volcano.sh/vgpu-ids-new": "GPU-v0,NVIDIA,4096,25:",
        "volcano.sh/devices-to-allocate": "GPU-v0,NVIDIA,4096,25:",
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": "7",
    }
    assert set(VGPU.annotations(placed.assignment, stamp, TABLES)) == VGPU.names(TABLES).assignment_keys
    assert VGPU.describe(placed.assignment, offered(V0)) == (
        CardShare("GPU-v0", "4096 MiB, 25 % cores", 4096, 25, "GPU-v0"),
    )


def waiting(left: str = "GPU-v0,NVIDIA,1,0:GPU-v1,NVIDIA,1,0:", phase: str = "allocating", time: str = "5", **fields):
    notes = {keys.NODE: "node-a", keys.TO_ALLOCATE: left, keys.BIND_PHASE: phase, keys.TIME: time}
    return pod(uid=PodUid("w"), annotations=notes, **({"node_name": "node-a"} | fields))


@pytest.mark.parametrize(
    ("found", "progress", "occupies", "cleans"),
    [
        pytest.param(waiting(), Progress.WAITING, True, False, id="bound"),
        pytest.param(waiting(node_name=""), Progress.WAITING, True, True, id="not bound"),
        pytest.param(waiting(left=""), Progress.DONE, False, False, id="nothing left"),
        pytest.param(waiting(phase="success"), Progress.WAITING, True, False, id="called served, by its name"),
        pytest.param(waiting(started=True), Progress.DONE, False, True, id="started, with rests"),
        pytest.param(waiting(phase="failed"), Progress.FAILED, True, True, id="the plugin refused it"),
        pytest.param(waiting(deleting=True), Progress.WAITING, True, False, id="being deleted while it is admitted"),
        pytest.param(waiting(deleting=True, started=True), Progress.DONE, False, True, id="being deleted, started"),
        pytest.param(waiting(left="", phase="failed"), Progress.FAILED, False, False, id="failed and cleaned"),
        pytest.param(waiting(left="x," * 20_000), Progress.FAILED, False, True, id="too long to be read"),
    ],
)
def test_a_pod_is_in_flight_as_the_plugin_sees_it(found, progress, occupies, cleans):
    seen = VGPU.in_flight(found, TABLES)
    assert seen is not None
    assert seen.progress is progress
    assert seen.confusable == (VGPU.confusable(ask(container(number=2))) if occupies else frozenset())
    assert seen.cleanup == ({keys.TO_ALLOCATE: ""} if cleans else None)


def test_a_pod_without_the_plugins_keys_is_never_served():
    assert VGPU.in_flight(pod(), TABLES) is None


def test_the_order_is_above_every_pod_still_to_be_served_and_above_now():
    assert VGPU.next_stamp([], 100) == 101
    assert VGPU.next_stamp([waiting(time="200"), waiting(time="150")], 100) == 201
    assert VGPU.next_stamp([waiting(time="200", left="")], 100) == 101
    assert VGPU.next_stamp([waiting(time=str(2**64 - 1)), waiting(time="x"), waiting(time="9" * 400)], 100) == 101


@pytest.mark.parametrize(("indices", "fits"), [("0", False), ("0,2", True), ("0,1,2", True)])
def test_a_wish_for_fewer_cards_than_are_asked_for_is_refused(indices, fits):
    asked = VGPU.request(pod(container(number=2, memory=100), annotations={"cardshare.io/gpu-index": indices}), TABLES)
    if fits:
        assert isinstance(asked, Request)
        return
    assert isinstance(asked, tuple)
    assert [(one.code, one.found) for one in asked] == [("CS106", "'0'")]
    assert "asks for (2)" in str(asked[0])


def test_at_its_best_a_node_keeps_its_order_for_nobody_knows_yet_how_old_its_handshake_is():
    offer = VGPU.offer(vgpu_node(V0, more={keys.HANDSHAKE: "Reported x"}), TABLES)
    assert isinstance(offer, Offer)
    assert not any(card.fixed.ordered for card in offer.cards)
    assert all(card.fixed.ordered for card in VGPU.at_best(offer.cards))


@pytest.mark.parametrize(
    ("amounts", "remedy"),
    [
        ({"memory": "40Gi"}, "the unit is 10 MiB already; write a whole number such as '4096'"),
        ({"memory": 1, "cores": "50Gi"}, "write a whole number no larger than 100"),
    ],
)
def test_a_suffix_is_told_of_memory_alone_and_in_its_unit(amounts, remedy):
    (said,) = VGPU.request(
        pod(container(number=1, **amounts)),
        Tables(sections=(VgpuTable(named=VgpuTable().named._replace(mib_per_unit=10)),)),
    )
    assert said.remedy == remedy
