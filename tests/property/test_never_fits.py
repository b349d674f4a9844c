"""What is said never to fit, against a twin that places the pod on every node's cards, all of them empty and well.

The twin has the nodes as they would be if all were well from the generator, and knows nothing of layouts.
"""

import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.admission import rules
from core.admission.rulebook import rulebook
from core.catalog import Asked
from core.inventory import Inventory, at_its_best, node_of
from core.model import Node, Pod
from core.settings import CARD_POLICIES, Settings
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
