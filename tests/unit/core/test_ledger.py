"""Who holds what: promises, counts, nodes that come, change and go."""

from dataclasses import replace

import pytest

from core import audit
from core.catalog import standard_catalog
from core.constraints.ports import in_use
from core.errors import InvariantError
from core.ledger import Ledger, Placement
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.settings import DialectName, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import HELD, Toy


@pytest.fixture
def ledger():
    made = Ledger(catalog_of(Toy()), Tables(), Settings())
    made.set_node(node("n1", "a:8,a:8"))
    return made


def node(name, cards, **about):
    return Node(name=NodeName(name), annotations={"toy.example/cards": cards}, allocatable={"pods": "9"}, **about)


def promise(uid, *entries, on="n1"):
    return Placement(
        pod=PodUid(uid),
        pod_key=f"d/{uid}",
        node=NodeName(on),
        dialect=Toy.name,
        assignment=entries,
        amounts=(("pods", 1),),
    )


def bound(uid, held, on="n1", **about):
    return Pod(
        uid=PodUid(uid), namespace="d", name=uid, node_name=on, annotations={HELD: held},
        containers=(Container(name="c"),), **about,
    )  # fmt: skip


def used(ledger, name="n1"):
    return [card.memory for card in ledger.states[NodeName(name)].offers[Toy.name]]


PORT = ("TCP", "", 8080)
LISTENS = (Container(name="c", host_ports=(PORT,)),)


def ports(ledger, name="n1"):
    return in_use((PORT,), ledger.states[NodeName(name)].held.get("ports"))


def test_a_host_port_is_in_use_from_the_promise_until_its_pod_is_gone(ledger):
    assert not ports(ledger)
    ledger.reserve(promise("p")._replace(dialect=None, uses=(("ports", (PORT,)),)))
    assert ports(ledger)
    ledger.count(bound("p", "")._replace(annotations={}, containers=LISTENS))
    assert ports(ledger)
    ledger.set_node(node("n1", "a:8"))
    assert ports(ledger)
    assert not in_use((PORT,), ledger.state_without(NodeName("n1"), PodUid("p")).held.get("ports"))
    assert audit.arithmetic(ledger, NodeName("n1")) == ()
    ledger.release(PodUid("p"))
    assert ledger.states[NodeName("n1")].held == {}


def test_a_promise_that_is_taken_back_leaves_its_port_free(ledger):
    with ledger.trial():
        ledger.reserve(promise("p")._replace(dialect=None, uses=(("ports", (PORT,)),)))
        assert ports(ledger)
    assert not ports(ledger)


def test_another_configuration_is_taken_in_slices_and_keeps_what_is_held(ledger):
    for number in range(2, 100):
        ledger.set_node(node(f"n{number}", "a:8"))
    ledger.count(bound("p", "0/3/0", on="n99"))
    cursor, judged = ledger.cursor, []
    for _ in ledger.configure(Tables(), Settings()):
        judged.append(ledger.cursor - cursor)
        cursor = ledger.cursor
    assert sum(judged) + ledger.cursor - cursor == 99
    assert max(judged) <= 8
    assert used(ledger, "n99") == [3]


def test_release_undoes_reserve_and_both_are_once(ledger):
    before = ledger.states[NodeName("n1")]
    ledger.reserve(promise("p", (0, 5, 0)))
    ledger.reserve(promise("p", (0, 5, 0)))
    assert used(ledger) == [5, 0]
    assert set(ledger.holders(NodeName("n1"))) == {"p"}
    assert ledger.release(PodUid("p"))
    assert not ledger.release(PodUid("p"))
    after = ledger.states[NodeName("n1")]
    assert (after.offers, ledger.holders(NodeName("n1"))) == (before.offers, {})
    assert {name: amount for name, amount in after.used.items() if amount} == before.used


def test_a_card_is_never_promised_beyond_what_it_has(ledger):
    ledger.reserve(promise("p", (0, 5, 0)))
    with pytest.raises(InvariantError, match="card 0: 10 of 8"):
        ledger.reserve(promise("q", (0, 5, 0)))
    assert used(ledger) == [5, 0]


def test_a_card_that_shrank_does_not_stop_promises_on_its_neighbour(ledger):
    ledger.reserve(promise("p", (0, 8, 0)))
    ledger.set_node(node("n1", "a:4,a:8"))
    ledger.reserve(promise("q", (1, 8, 0)))
    assert ledger.overcommitted(NodeName("n1")) == ("card 0: 8 of 4",)


def test_a_bound_pod_replaces_its_reservation_by_what_it_really_holds(ledger):
    ledger.reserve(promise("p", (0, 5, 0)))
    ledger.count(bound("p", "1/3/0"))
    assert used(ledger) == [0, 3]


def test_counting_the_same_again_is_no_change(ledger):
    ledger.count(bound("p", "0/3/0"))
    cursor = ledger.cursor
    ledger.count(bound("p", "0/3/0", resource_version="2"))
    assert ledger.cursor == cursor


def test_a_pod_that_is_resized_takes_what_it_asks_for_now(ledger):
    ledger.count(bound("p", "0/3/0"))
    resized = bound("p", "0/3/0")._replace(containers=(Container(name="c", requests={"cpu": "2"}),))
    ledger.count(resized)
    assert ledger.states[NodeName("n1")].used["cpu"] == 2000
    ledger.count(resized._replace(overhead={"cpu": "500m"}))
    assert ledger.states[NodeName("n1")].used["cpu"] == 2500


@pytest.mark.parametrize("later", ["1/3/0", "0/1/0", None], ids=["other-card", "less", "removed"])
@pytest.mark.parametrize("deleting", [False, True])
def test_a_bound_pod_holds_what_it_was_bound_with_whatever_it_says_later(ledger, later, deleting):
    assert ledger.count(bound("p", "0/3/0"))
    changed = bound("p", "0/3/0", resource_version="2", deleting=deleting)
    changed = changed._replace(annotations={} if later is None else {HELD: later})
    assert not ledger.count(changed)
    assert used(ledger) == [3, 0]
    # Nor does it count elsewhere when its node changes, or the configuration does.
    ledger.set_node(node("n1", "a:8,a:8,a:8"))
    assert used(ledger) == [3, 0, 0]
    assert list(ledger.configure(Tables(), Settings())) == []
    assert used(ledger) == [3, 0, 0]
    assert ledger.count(bound("p", "0/3/0", resource_version="3"))
    assert ledger.release(PodUid("p"))
    assert used(ledger) == [0, 0, 0]


def test_a_deleting_pod_still_holds_and_a_finished_one_does_not(ledger):
    ledger.count(bound("p", "0/3/0", deleting=True))
    assert used(ledger) == [3, 0]
    ledger.count(bound("p", "0/3/0", deleting=True, phase=Phase.FAILED))
    assert used(ledger) == [0, 0]


def test_pods_of_a_node_that_is_not_there_are_strays_until_it_appears(ledger):
    ledger.count(bound("p", "0/3/0", on="ghost"))
    assert ledger.stray_pods() == (("ghost", "d/p"),)
    ledger.set_node(node("ghost", "a:8"))
    assert used(ledger, "ghost") == [3]
    assert ledger.stray_pods() == ()
    ledger.remove_node(NodeName("ghost"))
    assert ledger.stray_pods() == (("ghost", "d/p"),)
    assert ledger.release(PodUid("p"))
    assert ledger.stray_pods() == ()


def test_a_node_that_says_the_same_changes_nothing(ledger):
    assert not ledger.set_node(node("n1", "a:8,a:8", resource_version="7"))
    assert ledger.set_node(node("n1", "a:8,a:8", unschedulable=True))


def test_an_unreadable_register_sets_the_node_aside_and_keeps_its_holders(ledger):
    ledger.count(bound("p", "0/3/0"))
    ledger.set_node(node("n1", "a:many"))
    state = ledger.states[NodeName("n1")]
    assert Toy.name not in state.offers
    assert [complaint.field for complaint in state.complaints] == ["toy.example/cards"]
    ledger.set_node(node("n1", "a:8"))
    assert used(ledger) == [3]


def test_what_happens_to_a_fork_does_not_happen_here(ledger):
    ledger.reserve(promise("p", (0, 5, 0)))
    twin = ledger.fork()
    twin.release(PodUid("p"))
    twin.reserve(promise("q", (1, 8, 0)))
    assert used(ledger) == [5, 0]
    assert used(ledger) == [5, 0]
    assert set(ledger.holders(NodeName("n1"))) == {"p"}


def test_what_happens_here_after_a_fork_does_not_happen_there(ledger):
    ledger.reserve(promise("p", (0, 5, 0)))
    twin = ledger.fork()
    ledger.release(PodUid("p"))
    ledger.set_node(node("n1", "a:8"))
    assert set(twin.holders(NodeName("n1"))) == {"p"}
    assert twin.node(NodeName("n1")) == node("n1", "a:8,a:8")


def test_a_node_can_be_looked_at_as_if_a_pod_held_nothing_there(ledger):
    ledger.reserve(promise("p", (0, 5, 0)))
    before = ledger.states[NodeName("n1")]
    without = ledger.state_without(NodeName("n1"), PodUid("p"))
    assert [card.memory for card in without.offers[Toy.name]] == [0, 0]
    assert ledger.state_without(NodeName("n1"), PodUid("q")) is ledger.states[NodeName("n1")] is before
    assert set(ledger.holders(NodeName("n1"))) == {"p"}


def test_the_log_names_what_changed_since_a_cursor(ledger):
    cursor = ledger.cursor
    ledger.reserve(promise("p", (0, 5, 0)))
    assert ledger.changes_since(cursor) == ["n1"]
    assert ledger.changes_since(ledger.cursor) == []
    assert ledger.changes_since(cursor - 10**9) is None


def test_of_protocols_that_sell_the_same_cards_a_node_serves_the_one_in_use():
    """A node that offers shares and whole cards of the same GPUs takes no pod of the other way (architecture 4)."""
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    amounts = {
        "pods": "9", "volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "32768", "volcano.sh/vgpu-cores": "100",
        "nvidia.com/gpu": "1",
    }  # fmt: skip
    register = "GPU-0,10,32768,NVIDIA-Tesla V100-SXM2-32GB,true,hami-core:"
    ledger.set_node(
        Node(
            name=NodeName("both"),
            labels={"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"},
            annotations={"volcano.sh/node-vgpu-register": register},
            capacity=amounts,
            allocatable=amounts,
        )
    )
    whole = Container(name="c", limits={"nvidia.com/gpu": "1"}, requests={"nvidia.com/gpu": "1"})
    pod = Pod(uid=PodUid("w"), namespace="d", name="w", node_name="both", containers=(whole,))
    assert set(ledger.states[NodeName("both")].offers) == {DialectName("vgpu"), DialectName("whole_gpu")}
    ledger.count(pod)
    assert ledger.states[NodeName("both")].closed == {
        DialectName("vgpu"): "its cards are in use as whole_gpu by pod d/w",
    }
    ledger.release(pod.uid)
    assert ledger.states[NodeName("both")].closed == {}


def test_a_promise_of_cards_that_the_node_does_not_offer_is_named(ledger):
    ledger.set_node(Node(name=NodeName("bare"), allocatable={"pods": "9"}))
    with pytest.raises(
        InvariantError, match=r"node bare: cards of toy are promised \(it offers no such cards\) to pod d/p"
    ):
        ledger.reserve(promise("p", (0, 5, 0), on="bare"))
    assert ledger.node_of(PodUid("p")) is None


class CountingToy(Toy):
    """Counts how often it reads a node."""

    def __init__(self):
        self.read = 0

    def offer(self, node, tables):
        self.read += 1
        return super().offer(node, tables)


def test_a_register_is_read_again_only_if_it_changed_or_is_to_be_read_otherwise():
    toy = CountingToy()
    ledger = Ledger(catalog_of(toy), Tables(), Settings())
    first = node("n1", "a:8,a:8")
    assert ledger.set_node(first)
    for beat in ("1", "2"):
        signs = {"hami.io/node-handshake": f"Reported {beat}", "hami.io/mutex.lock": beat}
        ledger.set_node(replace(first, annotations={**first.annotations, **signs}, resource_version=beat))
    # The first one has come in.
    assert toy.read == 2
    assert not ledger.set_node(first)
    assert toy.read == 3
    before = ledger.states[NodeName("n1")].offers
    ledger.keep_out(NodeName("n1"), {Toy.name: frozenset({"0"})})
    ledger.keep_out(NodeName("n1"), {})
    assert (ledger.states[NodeName("n1")].offers, toy.read) == (before, 3)
    assert ledger.set_node(node("n1", "a:8"))
    assert len(used(ledger)) == 1
    for _ in ledger.configure(Tables(), Settings()):
        pass
    assert toy.read == 5
