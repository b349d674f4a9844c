"""What is said never to fit, against a twin that places the pod on every node's cards, all of them empty and well.

The twin has the nodes as they would be if all were well from the generator, and knows nothing of layouts.
"""

import re
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.admission import rules
from core.admission.rulebook import rulebook
from core.catalog import Asked
from core.inventory import Inventory, at_its_best, node_of
from core.model import Container, Node, NodeName, Pod, PodUid
from core.settings import CARD_POLICIES, Settings
from tests.support.devices import vendors
from tests.support.devices.following import asking, without
from tests.support.devices.reviewed import reviewed
from tests.support.devices.selling import CATALOG, TABLES, cluster, wishing


def could_ever(best: list[Node], asked: Asked) -> bool:
    """Whether some node takes it, under some policy and in some mode."""
    dialect = CATALOG.dialects[asked.dialect]
    requests = [asked.request, *(request for _, request in dialect.ways(asked.request))]
    for node in best:
        offers, _ = CATALOG.offers(node, TABLES, Settings())
        cards = offers.get(asked.dialect, ())
        for request in requests:
            if any(cards and dialect.place(cards, request, policy) is not None for policy in CARD_POLICIES):
                return True
    return False


def largest(best: list[Node], asked: Asked) -> int:
    """The memory of the cluster's largest card of a protocol."""
    dialect = CATALOG.dialects[asked.dialect]
    offers = [CATALOG.offers(node, TABLES, Settings())[0].get(asked.dialect, ()) for node in best]
    return max((one.total for cards in offers for one in dialect.tally(cards)), default=0)


def followed(pod: Pod, remedy: str, chance: Random) -> Pod | None:
    """*pod* after somebody did what *remedy* says in figures and names; None if it names none."""
    if found := re.search(r"leave annotations? (.*) out, or name", remedy):
        return without(pod, *found[1].split(" and "))
    if found := re.search(r"; ask for (\d+) (MiB|AI cores|GPUs?|cards?|)(.*?)(?:or less|or fewer)( in all)?$", remedy):
        amount, unit, *rest = found.groups("")
        together = "in all" in "".join(rest)
        what = f"{unit or 'cards'}{' in all' if together else ' of memory' if unit == 'MiB' else ''}"
        return asking(pod, f"{amount} {what}", chance)
    return None


def check(seed: int) -> str:
    """One cluster and one pod: "false" or "missed" where the verdict is, else what it is."""
    chance = Random(seed)
    nodes, kinds, best = cluster(chance)
    book = rulebook(Settings(node_kinds=tuple(kinds)), TABLES, CATALOG)
    assert CATALOG.problems_of_kinds(TABLES, book.settings) == ()
    inventory = Inventory()
    for node in (*map(at_its_best, nodes), *map(node_of, kinds)):
        offers, complaints = CATALOG.offers(node, TABLES, book.settings)
        assert complaints == ()
        inventory.put(node.name, offers, complaints, CATALOG.dialects)
    book = book.with_stock(inventory.stock())
    pod, named = wishing(chance, best)
    asked = CATALOG.request_of(pod, TABLES, book.settings)
    if not isinstance(asked, Asked):
        return "not asked"
    never = rules.never_fits(reviewed(pod), asked, book)
    could = could_ever(best, asked)
    if never is not None and could:
        return "false"
    if never is None and not could and not named:
        return "missed"
    if never is not None and not named:
        other = followed(pod, never.remedy, chance)
        asked_now = CATALOG.request_of(other, TABLES, book.settings) if other is not None else None
        assert other is None or (isinstance(asked_now, Asked) and could_ever(best, asked_now)), (seed, never)
    if never is not None and (told := re.search(r"no card has (\d+) MiB", never.remedy)):
        assert int(told[1]) > largest(best, asked), (seed, never)
    return "never" if never is not None else "could"


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**40))
def test_no_verdict_is_false_and_none_is_missed(seed):
    assert check(seed) not in {"false", "missed"}


def vendors_pod(port, chance: Random) -> Pod:
    """A pod for cards of *port*, which may ask for more than any node has."""
    vendor = port.vendor
    names = [f"c{at}" for at in range(1 if vendor.limits.one_container else chance.choice((1, 1, 1, 2)))]
    containers = [vendors.any_container(vendor, chance, name) for name in names]
    if chance.random() < 0.3:
        key = chance.choice([one for one in (vendor.limits.count, vendor.limits.memory) if one])
        usual = {
            vendor.limits.count: vendor.limits.counts or (3, 6, 9),
            vendor.limits.memory: vendor.limits.steps or (80, 70000),
        }[key]
        containers[0] = Container("c0", limits={**containers[0].limits, key: str(chance.choice(usual))})
    alone = all(one.limits.get(vendor.limits.count) == "1" for one in containers)
    return Pod(
        uid=PodUid("p"),
        namespace="n",
        name="p",
        annotations=vendors.any_notes(vendor, chance, alone=alone),
        containers=tuple(one._replace(requests=one.limits) for one in containers),
    )


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(vendors.PORTS), st.integers(0, 2**40))
def test_no_verdict_on_cards_of_hamis_other_vendors_is_false_and_none_is_missed(port, seed):
    chance, vendor = Random(seed), port.vendor
    inventory, best = Inventory(), []
    for at in range(chance.choice((1, 1, 2, 3))):
        like = chance.random()
        ill, well = (
            replace(vendors.any_node(vendor, Random(like), each), name=NodeName(f"n{at}")) for each in (0.3, 0)
        )
        inventory.put(ill.name, CATALOG.offers(at_its_best(ill), vendors.TABLES, Settings())[0], (), CATALOG.dialects)
        best.append(port.offer(well, vendors.TABLES).cards)
    book = rulebook(Settings(), vendors.TABLES, CATALOG).with_stock(inventory.stock())

    def could(request) -> bool:
        return any(port.place(cards, request, policy) is not None for cards in best for policy in CARD_POLICIES)

    pod = vendors_pod(port, chance)
    asked = CATALOG.request_of(pod, vendors.TABLES, book.settings)
    if not isinstance(asked, Asked):
        return
    never = rules.never_fits(reviewed(pod), asked, book)
    assert (never is None) is could(asked.request), never
    remedy = never.remedy if never is not None else ""
    if found := re.search(r"; ask for (\d+)( cards?| cores?| units?| MiB)?( \(\d+ MiB\))? or (less|fewer)$", remedy):
        amount, unit, mib, less = found.groups("")
        words = f"{amount}{unit or ' cards'}{' of memory' if less == 'less' else ''}{mib}"
        followed = vendors.lowered(vendor, pod, words)
        assert could(port.request(followed, vendors.TABLES)), (remedy, pod)
