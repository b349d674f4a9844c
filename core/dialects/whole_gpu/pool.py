"""The GPUs of a node as NVIDIA's own plugin sells them: a count of one model, of which the plugin takes any.

The model comes from the labels of GPU feature discovery, or from the vGPU plugin's register where a node has one.
A product label ends in ``-SHARED`` where time-slicing multiplies the count, and in ``-MIG-1g.5gb`` where slices of
that profile are counted; both stay words of the model, so that a pod can ask for them or leave them alone.
"""

from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.model import AnyPod, Container, Node, most_at_once
from core.names import VGPU_REGISTER
from core.port.cards import Offer
from core.port.refusals import Complaint, Violation
from core.selection import CardSelection, Words, type_words
from core.settings import DialectName, Tables
from core.sharing.request import Figures
from core.units import parse_count
from core.wire.vgpu_register import decode_register

RESOURCE: Final = "nvidia.com/gpu"
PRODUCT: Final = "nvidia.com/gpu.product"
# How NVIDIA's plugin shares the GPUs of a node. With MPS it rejects a container that asks for several, unless its
# configuration says otherwise (since v0.20): setting `mps_several_gpus`, because no node shows it.
# Source: NVIDIA/k8s-device-plugin, README, internal/rm/rm.go (ValidateRequest), api/config/v1/config.go.
_SHARING: Final = "nvidia.com/gpu.sharing-strategy"
_MPS: Final = "mps"

# No machine has more, time-slicing included; a figure beyond it is a mistake.
MAX_GPUS: Final = 1 << 16

# What NVIDIA's plugin calls parts of cards, with MIG strategy mixed, or renamed when it shares cards in time or by MPS.
# Source: NVIDIA/k8s-device-plugin, README.
PARTS: Final = ("nvidia.com/mig-", "nvidia.com/gpu.shared")


class Kind(NamedTuple):
    """What pools have in common that answer alike: the models that are in them, and how many GPUs.

    each: the most that a container may have of them.
    """

    models: tuple[Words, ...]
    total: int
    each: int


class Pool(NamedTuple):
    """A node's GPUs: how many of them pods hold, ours and others'. label: the models as the node writes them."""

    kind: Kind
    label: str
    used: int = 0

    @property
    def free(self) -> int:
        """GPUs that no pod holds."""
        return self.kind.total - self.used


def offer(node: Node, tables: Tables) -> Offer[Pool] | Complaint | None:
    """The pool of *node*; None if NVIDIA's plugin does not run there."""
    text = node.allocatable.get(RESOURCE)
    if text is None:
        return None
    try:
        total = parse_count(text, f"allocatable {RESOURCE}", MAX_GPUS)
    except InvalidRequestError as error:
        return Complaint(
            dialect=DialectName("whole_gpu"), field=error.field, problem=f"found {error.found}; {error.remedy}"
        )
    if not total:
        return None
    names = _models(node)
    each = 1 if node.labels.get(_SHARING) == _MPS and not tables.mps_several_gpus else MAX_GPUS
    return Offer(cards=(Pool(Kind(tuple(map(type_words, names)), total, each), ", ".join(names)),))


def accepts(selection: CardSelection, models: tuple[Words, ...]) -> bool:
    """Whether every GPU that the plugin could take is of a type that the pod accepts; an unknown one may not be."""
    if not (selection.use_types or selection.no_use_types):
        return True
    return bool(models) and all(selection.accepts_type(words) for words in models)


def gpus_of(pod: AnyPod, violations: list[Violation], most: int = MAX_GPUS) -> int:
    """How many GPUs *pod* takes of its node at most at once, as kubelet counts them; of a container *most* count.

    Figures that are no whole numbers count as 0, and add CS101 to *violations*.
    """

    def counted(one: Container) -> int:
        return min(Figures(one, "container", violations).read(RESOURCE, "CS101", maximum=MAX_GPUS) or 0, most)

    return most_at_once(pod, counted)


def most_of_one(pod: AnyPod) -> int:
    """How many GPUs the container of *pod* takes that takes most."""
    containers = (*pod.init_containers, *pod.containers)
    return max([Figures(one, "container", []).read(RESOURCE, "CS101", maximum=MAX_GPUS) or 0 for one in containers])


def takes_parts(pod: AnyPod) -> bool:
    """Whether *pod* takes cards of NVIDIA's plugin by another name: MIG instances, or shares in time."""
    return any(
        key.startswith(PARTS) and text != "0"
        for one in (*pod.containers, *pod.init_containers)
        for key, text in (*one.limits.items(), *one.requests.items())
    )


def _models(node: Node) -> tuple[str, ...]:
    product = node.labels.get(PRODUCT, "").strip()
    if product:
        return (product,)
    try:
        records = decode_register(node.annotations.get(VGPU_REGISTER, ""))
    except InvalidRequestError:
        return ()
    return tuple(sorted({record.type for record in records}))
