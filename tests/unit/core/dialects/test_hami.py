"""HAMi's protocol for NVIDIA cards: whose a node and a pod are, what is held, and what the plugin is told."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core import hami_lock
from core.admission.defaulting import complete_container
from core.admission.mutate import judge_new
from core.admission.rulebook import rulebook
from core.catalog import Asked, standard_catalog
from core.dialects.hami import keys
from core.dialects.hami.dialect import DIALECT
from core.dialects.hami.table import HamiTable
from core.model import Container, Node, NodeName, Pod, PodUid
from core.node_state import Reader
from core.port.cards import Offer, Placed
from core.port.handoff import Progress, Stamp
from core.port.refusals import Complaint, Reason
from core.settings import DialectName, Policy, Settings, Tables
from core.sharing import order
from core.sharing.card import CORDON
from core.sharing.request import Request
from sandbox.players import hami_instances
from tests.support.devices.reviewed import reviewed
from tests.support.judging.asking import CONSTRAINTS

PORT: Any = DIALECT.port
TABLES = Tables()
HAMI, WHOLE = DialectName("hami"), DialectName("whole_gpu")
CATALOG = standard_catalog()
PROFILES = hami_instances.profiles()


def card(name, index=0, **more):
    plain = {"id": name, "index": index, "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100-SXM4-40GB"}
    return {**plain, "mode": "hami-core", "health": True, **more}


def node(*cards, allocatable=None, labels=None, **annotations):
    shares = str(allocatable if allocatable is not None else 10 * len(cards))
    notes = {keys.REGISTER: json.dumps(cards), **annotations}
    return Node(name=NodeName("n"), annotations=notes, allocatable={"nvidia.com/gpu": shares}, labels=labels or {})


def ask(number=1, memory=None, cores=None, percent=None):
    figures = {"nvidia.com/gpumem": memory, "nvidia.com/gpucores": cores, "nvidia.com/gpumem-percentage": percent}
    limits = {"nvidia.com/gpu": str(number)} | {key: str(one) for key, one in figures.items() if one is not None}
    return Container("main", limits=limits)


def pod(*containers, inits=(), annotations=None, **more):
    return Pod(
        uid=PodUid("u"),
        namespace="ns",
        name="p",
        containers=containers,
        init_containers=inits,
        annotations=annotations or {},
        **more,
    )


def cards_of(found):
    offer = PORT.offer(found, TABLES)
    assert isinstance(offer, Offer), offer
    return offer.cards


def placed(cards, asking, policy=Policy.SPREAD):
    request = PORT.request(asking, TABLES)
    assert isinstance(request, Request), request
    return PORT.place(cards, request, policy)


def text(found: Placed[Any]):
    return PORT.annotations(found.assignment, Stamp(node=NodeName("n"), now_s=7, order=7), TABLES)[keys.ALLOCATED]


def test_ties_go_to_the_highest_index_whatever_the_order_of_the_register():
    cards = cards_of(node(card("GPU-b", 1), card("GPU-a", 0)))
    assert text(placed(cards, pod(ask(memory=4096, cores=25)))) == "GPU-b,NVIDIA,4096,25:;"


def test_every_container_has_its_segment():
    found = placed(cards_of(node(card("GPU-a"))), pod(Container("side"), ask(memory=2000), Container("tail")))
    assert text(found) == ";GPU-a,NVIDIA,2000,0:;;"


@pytest.mark.parametrize(("asked", "counted"), [(ask(2, 3), 6), (ask(1, percent=10), 5), (ask(1, 7, 30), 7)])
def test_a_part_of_a_unit_counts_as_a_whole_one(asked, counted):
    tables = Tables(sections=(HamiTable(named=HamiTable().named._replace(mib_per_unit=1000)),))
    request = PORT.request(pod(asked), tables)
    assert isinstance(request, Request), request
    found = PORT.place(cards_of(node(card("a"), card("b", 1))), request, Policy.SPREAD)
    assert found is not None
    metered = PORT.metered(found.assignment, tables)
    assert metered["nvidia.com/gpumem"] == counted
    assert set(PORT.names(tables).budgeted) < set(metered)


def test_an_oversubscribed_card_has_what_its_plugin_registers():
    (one,) = cards_of(node(card("GPU-a", count=4, devmem=81920, devcore=200)))
    assert (one.fixed.slots, one.fixed.memory, one.fixed.cores) == (4, 81920, 200)
    assert placed((one,), pod(ask(memory=81920, cores=60))) is not None


def test_a_cordoned_card_takes_nothing_new_and_goes_on_holding():
    (one,) = cards_of(node(card("GPU-a"), **{CORDON: " GPU-a ,"}))
    assert one.fixed.fault is Reason.CORDONED
    assert placed((one,), pod(ask(memory=1))) is None


def test_cards_that_a_node_serves_over_the_network_are_not_sold_there():
    found = PORT.offer(node(card("GPU-a", mode="remote"), card("GPU-b", 1, mode="remote")), TABLES)
    assert isinstance(found, Complaint)
    assert "over the network" in found.problem
    assert found.remedy in found.problem
    assert "HAMi's own scheduler" in found.remedy


def test_a_cordon_that_no_card_has_is_told_and_closes_nothing():
    found = PORT.offer(node(card("GPU-a"), card("GPU-b", 1), **{CORDON: "GPU-b, GPU-x,GPU-y"}), TABLES)
    assert [one.fixed.fault for one in found.cards] == [None, Reason.CORDONED]
    (told,) = found.complaints
    assert (told.dialect, told.field, told.closes) == (HAMI, f"annotation {CORDON}", False)
    assert told.problem.startswith("no card of the node has the UUID 'GPU-x', 'GPU-y', so that cordons none")
    for text in ("", ",", "GPU-a", "GPU-a,GPU-b"):
        assert PORT.offer(node(card("GPU-a"), card("GPU-b", 1), **{CORDON: text}), TABLES).complaints == ()


def test_no_card_takes_anything_while_kubelet_alone_knows_that_one_is_unhealthy():
    late = cards_of(node(card("GPU-a"), card("GPU-b", 1), allocatable=10))
    assert placed(late, pod(ask(memory=1))) is None
    # The others do not become unhealthy with it, however often that happens.
    assert PORT.well(late) == {"GPU-a", "GPU-b"}
    (short, _) = PORT.shortfalls(late, PORT.request(pod(ask(memory=1)), TABLES))
    assert (short.reason, "the register does not say yet which" in short.detail) == (Reason.UNHEALTHY, True)

    known = cards_of(node(card("GPU-a"), card("GPU-b", 1, health=False), allocatable=10))
    assert text(placed(known, pod(ask(memory=1)))) == "GPU-a,NVIDIA,1,0:;"
    assert PORT.well(known) == {"GPU-a"}
    # Of instances the register does not say how many shares kubelet has.
    assert {
        one.fixed.fault for one in cards_of(node(card("GPU-a", **CUT), card("GPU-b", 1, **CUT), allocatable=4))
    } == {None}


def test_a_whole_card_in_mode_mig_is_its_largest_instance():
    cards = cards_of(node(card("GPU-a", mode="mig", count=7, migProfiles=PROFILES)))
    found = placed(cards, pod(ask(), annotations={keys.MODE: "mig"}))
    (reserved,) = json.loads(PORT.annotations(found.assignment, Stamp(node=NodeName("n"), now_s=7, order=7), TABLES)[
        keys.RESERVATIONS])  # fmt: skip
    assert (reserved["profile"], reserved["placement"]) == ("7g.40gb", {"start": 0, "size": 8})


def test_a_card_that_is_cut_has_as_many_rooms_as_instances_beside_those_in_use():
    def place(asked):
        return PORT.place(cut, PORT.request(pod(asked), TABLES), Policy.BINPACK)

    cut = PORT.offer(node(card("GPU-0", mode="mig", migProfiles=PROFILES)), TABLES).cards
    assert len(PORT.room(cut).free) == 7
    large = place(ask(1, memory=19000)).assignment
    assert large.entries[0].slice == ("", 4, 4)
    cut = PORT.take(cut, large)
    assert len(PORT.room(cut).free) == 4
    assert place(ask(5, memory=4000)) is None
    assert PORT.room(PORT.take(cut, place(ask(4, memory=4000)).assignment)).free == []
    plain = PORT.offer(node(card("GPU-0"), card("GPU-1", 1)), TABLES).cards
    assert len(PORT.room(plain).free) == 2


def test_all_instances_of_an_init_container_are_in_use_at_once():
    cut = node(card("GPU-a", count=7, mode="mig", migprofiles=PROFILES))
    asking = pod(ask(memory=9_000), inits=(ask(3, memory=4_000),))
    found = placed(cards_of(cut), asking)
    (charge,) = found.assignment.charges
    entries = [one for one in found.assignment.entries if not one.container]
    assert (charge.slots, charge.memory) == (3, sum(one.memory for one in entries))
    notes = PORT.annotations(found.assignment, Stamp(node=NodeName("n"), now_s=7, order=7), TABLES)
    held = PORT.held(asking._replace(node_name="n", annotations=notes), cards_of(cut), TABLES)
    assert held.assignment.charges == found.assignment.charges


def test_cards_are_compared_by_their_own_policies_alone():
    """`pack` is decided among nodes; why a pod does not fit is asked by every policy that a dialect knows."""
    cards = cards_of(node(card("GPU-0")))
    asked = PORT.request(pod(ask(memory=1000), ask(memory=2000)), TABLES)
    assert PORT.shortfalls(cards, asked) == ()


def test_a_card_of_which_all_cores_are_promised_has_no_room():
    def place(cores):
        return PORT.place(plain, PORT.request(pod(ask(1, memory=500, cores=cores)), TABLES), Policy.BINPACK)

    plain = PORT.offer(node(card("GPU-0")), TABLES).cards
    plain = PORT.take(plain, place(100).assignment)
    assert PORT.room(plain).free == []
    assert place(0) is None


def test_a_pod_on_a_mig_card_without_its_instances_closes_the_card():
    cards = cards_of(node(card("GPU-a", mode="mig", count=7, migProfiles=PROFILES)))
    bound = pod(ask(memory=4000), annotations={keys.ALLOCATED: "GPU-a,NVIDIA,4864,15:;"}, node_name="n")
    after = PORT.take(cards, PORT.held(bound, cards, TABLES).assignment)
    assert placed(after, pod(ask(memory=1000))) is None
    assert placed(cards, pod(ask(memory=1000))) is not None


@pytest.mark.parametrize(
    ("found", "offered"),
    [
        pytest.param(node(card("GPU-a"), card("GPU-b", 1)), {HAMI}, id="shares of HAMi's"),
        pytest.param(node(card("GPU-a"), card("GPU-b", 1), allocatable=2), {WHOLE}, id="a register that is left over"),
        pytest.param(node(card("GPU-a", count=1), allocatable=1, labels={"gpu": "on"}), {HAMI}, id="one share a card"),
        pytest.param(node(allocatable=8, **{keys.REGISTER: "what"}), set(), id="a register that cannot be read"),
    ],
)
def test_a_node_is_served_by_one_plugin(found, offered):
    offers, complaints = CATALOG.offers(found, TABLES, Settings())
    assert set(offers) == offered
    assert bool(complaints) is (offered != {HAMI})


def on(**labels):
    """A node on which HAMi's plugin is meant to run; labels are those of GPU feature discovery."""
    return {"gpu": "on"} | {f"nvidia.com/gpu.{key.replace('_', '-')}": value for key, value in labels.items()}


TWO = (card("GPU-a"), card("GPU-b", 1))
CUT = {"mode": "mig", "count": 7, "migProfiles": PROFILES}


@pytest.mark.parametrize(
    ("cards", "allocatable", "labels", "is_hamis"),
    [
        pytest.param(TWO, 2, on(), False, id="as many as cards"),
        pytest.param(TWO, 2, on(count="2"), False, id="as many as cards that are counted"),
        pytest.param(TWO, 1, on(count="2"), False, id="one card less"),
        pytest.param(TWO, 8, on(), False, id="no whole number of shares of each card"),
        pytest.param(TWO, 8, on(count="2", replicas="4", sharing_strategy="time-slicing"), False, id="in time"),
        pytest.param(TWO, 20, on(count="2", replicas="10", sharing_strategy="mps"), False, id="by MPS, as many"),
        pytest.param(TWO, 20, on(count="2", replicas="1", sharing_strategy="none"), True, id="discovered alone"),
        pytest.param(TWO, 20, on(count="2", replicas="4", sharing_strategy="time-slicing"), True, id="other replicas"),
        pytest.param(TWO, 10, on(count="2"), True, id="a card is unhealthy, the register is late"),
        pytest.param(TWO, 30, on(), True, id="a card that is not registered"),
        pytest.param(tuple(card(f"GPU-{at}", at) for at in range(10)), 10, on(), False, id="ten cards, ten shares"),
        pytest.param(
            tuple(card(f"GPU-{at}", at, health=not at) for at in range(10)),
            10,
            on(),
            True,
            id="one healthy card of ten",
        ),
        pytest.param((card("GPU-a", **CUT),), 10, on(count="1"), True, id="mig"),
        pytest.param((card("GPU-a", **CUT), card("GPU-b", 1, **CUT)), 4, on(count="2"), True, id="mig, few shares"),
        pytest.param((card("GPU-a", **CUT),), 1, on(count="1"), False, id="mig, as many as cards that are counted"),
        pytest.param((card("GPU-a", count=1),), 1, on(count="1"), True, id="one share a card"),
        pytest.param((card("GPU-a", count=1),), 1, {}, False, id="one share a card, nobody says whose"),
    ],
)
def test_no_share_is_sold_where_another_plugin_answers_whatever_the_label_of_the_node_says(
    cards, allocatable, labels, is_hamis
):
    offers, complaints = CATALOG.offers(node(*cards, allocatable=allocatable, labels=labels), TABLES, Settings())
    assert set(offers) == ({HAMI} if is_hamis else {WHOLE})
    assert ["another device plugin" in one.problem for one in complaints] == [True] * (not is_hamis)


ON, INSTALLED = {"gpu": "on"}, Tables(sections=(HamiTable(installed=True),))


@pytest.mark.parametrize(
    ("labels", "allocatable", "tables", "lost"),
    [
        pytest.param(ON, 20, INSTALLED, True, id="shares of no card"),
        pytest.param(ON, 0, INSTALLED, False, id="a plugin that is not there yet"),
        pytest.param({}, 20, INSTALLED, False, id="a node of no plugin of HAMi's"),
        pytest.param(ON, 20, TABLES, False, id="a cluster without HAMi's configuration"),
        pytest.param(
            ON | {"nvidia.com/gpu.count": "20"}, 20, INSTALLED, False, id="cards that are counted as NVIDIA's"
        ),
        pytest.param(
            on(count="2", replicas="10", sharing_strategy="time-slicing"), 20, INSTALLED, False, id="cards in time"
        ),
    ],
)
def test_a_register_that_stays_away_is_told_and_its_shares_are_not_sold_as_cards(labels, allocatable, tables, lost):
    found = replace(node(labels=labels, allocatable=allocatable), annotations={})
    offers, complaints = CATALOG.offers(found, tables, Settings())
    assert set(offers) == ({WHOLE} if allocatable and not lost else set())
    assert ["restart HAMi's device plugin" in one.problem for one in complaints] == [True] * lost


@pytest.mark.parametrize("register", [json.dumps([card("GPU-a")]), "what"], ids=["shares", "unreadable"])
def test_shares_of_hamis_are_sold_by_nobody_where_its_dialect_is_switched_off(register):
    off = Settings(dialects=frozenset(CATALOG.dialects) - {HAMI})
    offers, complaints = CATALOG.offers(node(allocatable=10, **{keys.REGISTER: register}), TABLES, off)
    assert offers == {}
    assert [(one.dialect, "switch hami on" in one.problem) for one in complaints] == [(WHOLE, True)]


@pytest.mark.parametrize(
    ("asking", "tables", "dialect"),
    [
        pytest.param(pod(ask(memory=100)), TABLES, HAMI, id="memory"),
        pytest.param(pod(ask(), annotations={order.CARD_POLICY: "binpack"}), TABLES, HAMI, id="a policy"),
        pytest.param(pod(ask(), scheduler_name="hami-scheduler"), TABLES, HAMI, id="HAMi's scheduler"),
        pytest.param(pod(ask(), scheduler_name="cardshare"), TABLES, WHOLE, id="plain"),
        pytest.param(
            pod(ask(), scheduler_name="cardshare"), Tables(sections=(HamiTable(installed=True),)), HAMI, id="HAMi's"
        ),
    ],
)
def test_a_pod_means_one_of_both_plugins(asking, tables, dialect):
    found = CATALOG.request_of(asking, tables, Settings())
    assert isinstance(found, Asked)
    assert found.dialect == dialect


class There:
    """A node's empty cards."""

    def __init__(self, found):
        self.empty: Mapping[DialectName, tuple[Any, ...]] = CATALOG.offers(found, TABLES, Settings())[0]
        self.scales: Mapping[DialectName, object] = {}


@pytest.mark.parametrize(
    ("found", "annotations", "dialect", "closes"),
    [
        pytest.param(node(card("GPU-a")), {keys.ALLOCATED: "GPU-a,NVIDIA,1,0:;"}, HAMI, False, id="its annotation"),
        pytest.param(node(card("GPU-a")), {}, HAMI, True, id="none, where HAMi serves"),
        pytest.param(node(card("GPU-a"), allocatable=1), {}, WHOLE, False, id="none, where NVIDIA serves"),
        pytest.param(
            node(card("GPU-a"), allocatable=1), {keys.ALLOCATED: "GPU-a,NVIDIA,1,0:;"}, HAMI, False, id="left over"
        ),
        pytest.param(node(card("GPU-a"), allocatable=1), {keys.ALLOCATED: ""}, HAMI, True, id="an empty one"),
    ],
)
def test_what_a_bound_pod_holds_is_counted_once(found, annotations, dialect, closes):
    bound = pod(ask(), annotations=annotations, node_name="n")
    (part,) = Reader(CATALOG, TABLES, CONSTRAINTS).counted(bound, There(found), (), None).parts
    assert (part.dialect, bool(part.closes)) == (dialect, closes)


def test_instances_of_a_pod_that_is_leaving_are_counted_until_it_is_gone():
    cards = cards_of(node(card("GPU-a", mode="mig", migProfiles=PROFILES)))
    reserved = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": "GPU-a", "profile": "3g.20gb"}
    annotations = {
        keys.ALLOCATED: "GPU-a,NVIDIA,19968,43:;",
        keys.RESERVATIONS: json.dumps([reserved | {"placement": {"start": 4, "size": 4}}]),
    }
    found = pod(ask(memory=19968), annotations=annotations, node_name="n", deleting=True)
    (after,) = PORT.take(cards, PORT.held(found, cards, TABLES).assignment)
    assert after.slices == (("", 4, 4),)


@pytest.mark.parametrize(
    ("annotations", "code"),
    [
        ({keys.MODE: "mix"}, "CS104"),
        ({order.CARD_POLICY: "numa-first"}, "CS104"),
        ({order.NODE_POLICY: "random"}, "CS104"),
        ({order.WEIGHTS: "slot=0,core=0,memory=0"}, "CS105"),
    ],
)
def test_words_that_hami_would_not_understand_are_refused(annotations, code):
    found = PORT.request(pod(ask(memory=1), annotations=annotations), TABLES)
    assert [one.code for one in found] == [code]


def test_shares_of_no_card_are_refused():
    limits = {"nvidia.com/gpumem": "100"}
    assert [one.code for one in PORT.request(pod(Container("c", limits=limits)), TABLES)] == ["CS203"]


def test_what_is_completed_is_what_admission_writes():
    book = rulebook(Settings(), Tables(sections=(HamiTable(installed=True),)), CATALOG)
    verdict = judge_new(reviewed(pod(ask(), inits=(ask()._replace(name="init"),))), "dana", book).verdict
    edits = [(one.place, one.values) for one in verdict.edits]
    cores = {"nvidia.com/gpucores": "100"}
    for where in ("containers", "initContainers"):
        assert (("spec", where, "0", "resources", "limits"), cores) in edits
        assert (("spec", where, "0", "resources", "requests"), {"nvidia.com/gpu": "1", **cores}) in edits


@pytest.mark.parametrize(
    ("labels", "edited"),
    [({"hami.io/webhook": "ignore"}, False), ({"hami.io/webhook": "yes"}, True), ({}, True)],
    ids=["ignored", "another word", "without"],
)
def test_a_pod_that_hamis_webhook_is_to_ignore_is_not_completed(labels, edited):
    book = rulebook(Settings(), Tables(sections=(HamiTable(installed=True),)), CATALOG)
    asking = reviewed(pod(ask(), scheduler_name="")._replace(labels=labels))
    verdict = judge_new(asking, "dana", book).verdict
    assert bool(verdict.edits) is edited
    # It is no way past the rules, nor to an assignment of one's own.
    forged = asking._replace(annotations={keys.ALLOCATED: "GPU-a,NVIDIA,1,1:;"})
    verdict = judge_new(forged, "dana", book).verdict
    assert any(one.place == ("metadata", "annotations") for one in verdict.edits)
    bad = asking._replace(annotations={order.CARD_POLICY: "numa-first"})
    assert [one.code for one in judge_new(bad, "dana", book).verdict.violations] == ["CS104"]


IGNORED = {"hami.io/webhook": "ignore"}
SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
CHIP = {"huawei.com/Ascend910B3": "1"}


@pytest.mark.parametrize(("chars", "has_label"), [(1, True), (63, True), (64, False)])
def test_the_plugins_monitor_finds_the_pods_of_its_node_by_a_label(chars, has_label):
    node = NodeName("n" * chars)
    assert PORT.labels(node) == ({"hami.io/vgpu-node": node} if has_label else {})


@pytest.mark.parametrize("limits", [SHARE, CHIP], ids=["share", "chip"])
@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "hami-scheduler", "cardshare"])
def test_a_pod_to_be_ignored_gets_the_scheduler_that_alone_can_place_it(limits, scheduler):
    book = rulebook(Settings(), Tables(sections=(HamiTable(installed=True),)), CATALOG)
    asking = pod(Container("c", limits=limits, requests=limits), scheduler_name=scheduler)._replace(labels=IGNORED)
    verdict = judge_new(reviewed(asking), "dana", book).verdict
    expected = {"schedulerName": "cardshare"} if scheduler in ("", "default-scheduler") else None
    assert [one.values for one in verdict.edits] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        ({"nvidia.com/gpumem": "1000"}, 'container "c": limit nvidia.com/gpu'),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100"}, 'container "c": limit nvidia.com/gpucores'),
        ({**SHARE, "nvidia.com/priority": "1"}, 'container "c": env CUDA_TASK_PRIORITY'),
    ],
    ids=["count", "cores", "priority"],
)
def test_a_pod_to_be_ignored_says_itself_what_would_be_completed(limits, missing):
    book = rulebook(Settings(), Tables(sections=(HamiTable(installed=True),)), CATALOG)
    asking = pod(Container("c", limits=limits, requests=limits), scheduler_name="")
    assert judge_new(reviewed(asking), "dana", book).verdict.allowed
    (found,) = judge_new(reviewed(asking._replace(labels=IGNORED)), "dana", book).verdict.violations
    assert (found.code, found.field, found.found) == ("CS319", missing, "nothing")


def test_a_pod_to_be_ignored_names_its_runtime_class_itself():
    book = rulebook(Settings(), Tables(sections=(HamiTable(installed=True, runtime_class="nvidia"),)), CATALOG)
    asking = reviewed(pod(Container("c", limits=SHARE, requests=SHARE))._replace(labels=IGNORED))
    (found,) = judge_new(asking, "dana", book).verdict.violations
    assert (found.code, found.field) == ("CS319", "spec.runtimeClassName")
    assert "write 'nvidia', or remove label hami.io/webhook: ignore" in found.remedy
    assert judge_new(asking._replace(runtime_class="nvidia"), "dana", book).verdict.allowed


def test_other_protocols_do_not_read_hamis_label():
    book = rulebook(Settings(), Tables(), CATALOG)
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}
    asking = reviewed(pod(Container("c", limits=limits))._replace(labels={"hami.io/webhook": "ignore"}))
    assert judge_new(asking, "dana", book).verdict.edits


def test_a_priority_becomes_the_variable_that_the_plugin_reads_and_is_no_resource_of_nodes():
    asking = ask(memory=1000)._replace(limits={**ask(memory=1000).limits, "nvidia.com/priority": "1"})
    asked = PORT.request(pod(asking), TABLES)
    assert isinstance(asked, Request)
    (container,) = PORT.completed(reviewed(pod(asking)), asked, TABLES)[0].containers
    assert container.reach.env == (("CUDA_TASK_PRIORITY", "1"),)
    # What the pod says itself stands.
    own = asking._replace(reach=asking.reach._replace(env=(("CUDA_TASK_PRIORITY", "0"),)))
    assert PORT.completed(reviewed(pod(own)), asked, TABLES)[0].containers == (own,)
    assert "nvidia.com/priority" in CATALOG.words(TABLES).uncounted
    (refused,) = PORT.request(pod(asking._replace(limits={**asking.limits, "nvidia.com/priority": "2"})), TABLES)
    assert (refused.code, refused.field) == ("CS304", 'container "main": limit nvidia.com/priority')
    # By the priority alone no card is asked for.
    assert PORT.request(pod(Container("main", limits={"nvidia.com/priority": "1"})), TABLES) is None


def test_what_hamis_webhook_would_set_by_its_map_is_set():
    table = Tables(sections=(HamiTable(installed=True, core_policy="force", hides_devices=True),))
    two = pod(ask(memory=1000), Container("side"))
    asked = PORT.request(two, table)
    assert isinstance(asked, Request)
    done = PORT.completed(reviewed(two), asked, table)[0]
    assert [one.reach.env for one in done.containers] == [
        (("GPU_CORE_UTILIZATION_POLICY", "force"),),
        (("NVIDIA_VISIBLE_DEVICES", "void"),),
    ]
    # A second time changes nothing more, and what the pod says itself stands.
    assert PORT.completed(done, asked, table)[0] == done
    book = rulebook(Settings(), table, CATALOG)
    assert judge_new(reviewed(done), "dana", book).verdict.violations == ()


@pytest.mark.parametrize(("number", "filled"), [(1, "1"), (2, "2"), (0, None)])
def test_the_number_of_cards_that_is_filled_in_is_the_maps(number, filled):
    book = rulebook(Settings(), Tables(sections=(HamiTable(installed=True, default_count=number),)), CATALOG)
    found = complete_container(Container("main", limits={"nvidia.com/gpumem": "100"}), book)
    assert found.limits.get("nvidia.com/gpu") == filled
    # Nothing of other dialects is filled in otherwise.
    other = complete_container(Container("main", limits={"volcano.sh/vgpu-memory": "100"}), book)
    assert other.limits["volcano.sh/vgpu-number"] == "1"


def test_a_node_that_offers_shares_by_another_name_is_told_with_that_name():
    found = PORT.offer(replace(node(card("GPU-a"), card("GPU-b", 1)), allocatable={"nvidia.com/vgpu": "20"}), TABLES)
    assert isinstance(found, Complaint)
    assert "it offers 20 nvidia.com/vgpu" in found.problem
    assert "hami_config_namespace" in found.problem


def test_only_all_of_the_memory_is_completed_by_all_cores():
    table = Tables(sections=(HamiTable(installed=True),))
    for asking, cores in ((ask(), "100"), (ask(percent=100), "100"), (ask(memory=5), None), (ask(percent=50), None)):
        asked = PORT.request(pod(asking), table)
        assert isinstance(asked, Request)
        (container,) = PORT.completed(reviewed(pod(asking)), asked, table)[0].containers
        assert container.limits.get("nvidia.com/gpucores") == cores
    defaults = Tables(sections=(HamiTable(installed=True, default_memory=5000),))
    whole = PORT.request(pod(ask()), defaults)
    assert isinstance(whole, Request)
    assert PORT.completed(reviewed(pod(ask())), whole, defaults)[0] == reviewed(pod(ask()))


def test_a_pod_is_in_flight_until_its_last_device_is_served():
    notes = {keys.TO_ALLOCATE: "A,NVIDIA,1,0:;", hami_lock.BIND_PHASE: "allocating"}
    bound = pod(ask(), annotations=notes, node_name="n")
    assert PORT.in_flight(bound, TABLES).progress is Progress.WAITING
    served = {keys.TO_ALLOCATE: ";;", hami_lock.BIND_PHASE: "success"}
    assert PORT.in_flight(bound._replace(annotations=served), TABLES).progress is Progress.DONE


def test_a_bad_card_is_left_out_by_itself():
    offer = PORT.offer(node(card("GPU-a"), card("GPU-b", 1, devmem="much"), card("GPU-c", 2)), TABLES)
    assert isinstance(offer, Offer)
    assert [one.fixed.fault for one in offer.cards].count(Reason.UNUSABLE) == 1
    assert [isinstance(one, Complaint) for one in offer.complaints] == [True]


@pytest.mark.parametrize("policy", ["binpack", "spread", "numa", "topology-aware"])
@pytest.mark.parametrize("figure", ["devcore", "devmem", "count"])
def test_a_card_of_nothing_is_compared_with_others_and_taken_by_nobody(figure, policy):
    cards = cards_of(node(card("GPU-a", **{figure: 0}), card("GPU-b", 1), card("GPU-c", 2, **{figure: 0})))
    found = placed(cards, pod(ask(cores=10), annotations={order.CARD_POLICY: policy}))
    assert text(found) == "GPU-b,NVIDIA,40960,10:;"


def test_numa_bound_cards_are_of_one_node_and_the_best_linked_of_all():
    cards = cards_of(
        node(
            *(card(f"GPU-{at}", at, numa=at // 2) for at in range(4)),
            **{keys.LINKS: json.dumps([{"uuid": "GPU-1", "score": {"GPU-0": 50}}])},
        )
    )
    asked = {order.NUMA_BIND: "true", order.CARD_POLICY: "topology-aware"}
    assert text(placed(cards, pod(ask(2, memory=10), annotations=asked))) == "GPU-1,NVIDIA,10,0:GPU-0,NVIDIA,10,0:;"
    assert placed(cards, pod(ask(3, memory=10), annotations=asked)) is None


@pytest.mark.parametrize("profiles", [PROFILES, []])
def test_cards_of_a_node_that_is_cut_are_not_chosen_by_their_links(profiles):
    """Also if the card that is cut has no instances to give."""
    links = [{"uuid": "GPU-1", "score": {"GPU-0": 50}}]
    cut = card("GPU-cut", 2, mode="mig", migprofiles=profiles)
    cards = cards_of(node(card("GPU-0"), card("GPU-1", 1), cut, **{keys.LINKS: json.dumps(links)}))
    asked = {order.CARD_POLICY: "topology-aware", keys.MODE: "hami-core"}
    assert text(placed(cards, pod(ask(memory=10), annotations=asked))) == "GPU-1,NVIDIA,10,0:;"


def asked_of(one, settings):
    """The code of the violation, or the dialect, of a pod."""
    found = CATALOG.request_of(one, TABLES, settings)
    assert found is not None
    return [each.code for each in found] if not isinstance(found, Asked) else found.dialect


def test_shares_are_no_whole_cards_where_the_dialect_is_switched_off():
    off = Settings(dialects=frozenset(CATALOG.dialects) - {HAMI})
    assert asked_of(pod(ask(memory=4000)), off) == ["CS202"]
    assert asked_of(pod(ask(), annotations={"nvidia.com/use-gputype": "A100"}), off) == WHOLE
    assert asked_of(pod(ask(memory=4000)), Settings()) == HAMI


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        ({"nvidia.com/gpumem": "40Gi"}, "the unit is 10 MiB already; write a whole number such as '4096'"),
        ({"nvidia.com/gpucores": "50Gi"}, "write a whole number no larger than 100"),
    ],
)
def test_a_suffix_is_told_of_memory_alone_and_in_its_unit(limits, remedy):
    asked = Container(name="c", limits={"nvidia.com/gpu": "1", **limits})
    pod = Pod(uid=PodUid("p"), namespace="default", name="p", containers=(asked,))
    (said,) = PORT.request(pod, Tables(sections=(HamiTable(named=HamiTable().named._replace(mib_per_unit=10)),)))
    assert said.remedy == remedy
