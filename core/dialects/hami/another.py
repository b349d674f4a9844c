"""Whether another plugin than HAMi's answers kubelet for the cards of a node: NVIDIA's own sells them by the same name.

Of two plugins that register one resource, kubelet asks the one that came last. The register of HAMi's stays behind, and
so does the label by which its chart chooses nodes; a share that is placed there is a whole card without limits. So what
kubelet counts and what GPU feature discovery says of NVIDIA's plugin outweigh both.
Source: protocol reference, hami 1.2, 2.4, 7.2; HAMi issues 595, 829; NVIDIA/k8s-device-plugin, README.
"""

from typing import Final

from core.dialects.hami import keys
from core.errors import InvalidRequestError
from core.model import Node
from core.port.refusals import Complaint
from core.sharing.card import MIG
from core.units import parse_count
from core.wire.hami_register import Record

# HAMi's chart runs its plugin on nodes with this label.
_LABEL: Final = ("gpu", "on")
LABEL: Final = "=".join(_LABEL)
# What GPU feature discovery says: how many cards there are, into how many NVIDIA's plugin shares each, and how.
_CARDS: Final = "nvidia.com/gpu.count"
_REPLICAS: Final = "nvidia.com/gpu.replicas"
_STRATEGY: Final = "nvidia.com/gpu.sharing-strategy"
_SHARING: Final = ("time-slicing", "mps")
_MOST: Final = 1 << 31


def is_labelled(node: Node) -> bool:
    """Whether HAMi's chart means its plugin to run on *node*."""
    key, value = _LABEL
    return node.labels.get(key) == value


def counted(node: Node, allocatable: int) -> str:
    """In words, by what GPU feature discovery counts *allocatable* GPUs for NVIDIA's plugin; "" if it does not."""
    cards, replicas = _figure(node, _CARDS), _figure(node, _REPLICAS)
    strategy = node.labels.get(_STRATEGY, "")
    if strategy in _SHARING and replicas > 1 and cards * replicas == allocatable:
        return f"{_CARDS}={cards} and {_REPLICAS}={replicas} ({strategy})"
    return f"{_CARDS}={cards}" if cards == allocatable else ""


def answers(node: Node, records: tuple[Record, ...], resource: str, allocatable: int) -> str:
    """Why it is not HAMi's plugin that has *allocatable* of *resource* on *node*, for people; "" if it may be.

    HAMi's has the same number of shares of each card, whether or not the register names that card; of those that are
    unhealthy it has none. In mode MIG the register does not tell how many these are.
    """
    shares = max(one.slots for one in records)
    cut = any(one.mode == MIG for one in records)
    own = sum(one.slots for one in records if one.healthy)
    labels = counted(node, allocatable)
    if _REPLICAS in labels:
        return _problem(node, f"{allocatable} {resource} are allocatable, which are NVIDIA's by its labels {labels}")
    if not cut and allocatable % max(shares, 1) and allocatable < shares * len(records):
        told = (
            f"{allocatable} {resource} are allocatable, but HAMi's plugin has {shares} of each of {len(records)} cards"
        )
        return _problem(node, told)
    if allocatable > len(records) or (allocatable == own and shares > 1):
        return ""
    told = f"{allocatable} {resource} are allocatable, no more than the {len(records)} cards of the register"
    if shares > 1 and (labels or not cut):
        return _problem(node, told + (f" (label {labels})" if labels else ""))
    # By one share of a card both plugins have the same figure.
    if is_labelled(node):
        return ""
    return f"{_problem(node, told)}; or label the node {LABEL} if HAMi's plugin runs there"


def _problem(node: Node, told: str) -> str:
    return (
        f"another device plugin, most likely NVIDIA's own, answers kubelet on {node.name}: {told}; a share there would "
        "be a whole card without limits; run one of the two plugins there and restart it, or remove the register"
    )


def deserted(node: Node) -> Complaint:
    """The complaint that HAMi's plugin runs on other nodes and not on *node*."""
    problem = (
        f"HAMi's device plugin does not run on {node.name}, but on other nodes: NVIDIA's may answer kubelet there, and "
        f"a share would be a whole card without limits; {remedy(node)}"
    )
    return Complaint(dialect=keys.NAME, field=f"annotation {keys.REGISTER}", problem=problem)


def remedy(node: Node) -> str:
    """What to do where another plugin answers: let one of the two serve the node."""
    unlabelled = f"kubectl label node {node.name} {_LABEL[0]}-" if is_labelled(node) else ""
    unregistered = f"kubectl annotate node {node.name} {keys.REGISTER}-"
    commands = " && ".join(filter(None, (unlabelled, unregistered)))
    return f"leave the node to NVIDIA's plugin ({commands}), or remove that one from it and restart HAMi's there"


def _figure(node: Node, label: str) -> int:
    try:
        return parse_count(node.labels.get(label, ""), label, _MOST)
    except InvalidRequestError:
        return 0
