"""The search answers for whole GPUs exactly what looking at every node would."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.whole_gpu.dialect import WholeGpu
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import decide, shape_of
from core.placing.score import NodePolicy
from core.placing.shape import scan
from core.settings import Policy, Settings
from core.tables import Tables
from tests.support.devices.catalogs import catalog_of

DIALECT = WholeGpu()
PRODUCTS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A10", "Tesla-T4", "")


def _pod(name: str, gpus: int, key: str, types: str, node_name: str = "") -> Pod:
    return Pod(
        uid=PodUid(name),
        namespace="default",
        name=name,
        node_name=node_name,
        annotations={key: types} if key else {},
        containers=(Container(name="c", limits={"nvidia.com/gpu": str(gpus)}),),
    )


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from((Policy.BINPACK, Policy.SPREAD, Policy.INDEX)),
    st.sampled_from((1, 1, 0)),
    st.lists(st.tuples(st.sampled_from(PRODUCTS), st.integers(1, 8)), min_size=1, max_size=10),
    st.lists(
        st.tuples(
            st.sampled_from("pppor"),
            st.integers(1, 4),
            st.sampled_from(("nvidia.com/use-gputype", "nvidia.com/nouse-gputype")),
            st.sampled_from(("A100", "A10", "T4,A10", "")),
            st.integers(0, 99),
        ),
        max_size=40,
    ),
)
def test_search_and_scan_agree_and_no_node_gives_more_than_it_has(policy, weight, nodes, steps):
    ledger = Ledger(catalog_of(DIALECT), Tables(), Settings(policy=policy))
    for at, (product, gpus) in enumerate(nodes):
        labels = {"nvidia.com/gpu.product": product} if product else {}
        allocatable = {"nvidia.com/gpu": str(gpus), "pods": "110"}
        ledger.set_node(Node(name=NodeName(f"n{at}"), labels=labels, allocatable=allocatable))
    node_policy = NodePolicy(policy, weight)
    candidates = Candidates(ledger, node_policy)
    here: list[PodUid] = []
    for at, (step, gpus, key, types, pick) in enumerate(steps):
        if step == "r":
            if here:
                ledger.release(here.pop(pick % len(here)))
            continue
        pod = _pod(f"p{at}", gpus, key, types)
        shape: Any = shape_of(pod, ledger)
        assert candidates.best(shape) == scan(ledger, node_policy, shape)
        placement = decide(candidates, pod, shape)
        if placement is None:
            continue
        if step == "p":
            ledger.reserve(placement)
        else:
            # Another scheduler's pod, which says nothing of models.
            ledger.count(_pod(pod.name, gpus, "", "", placement.node))
        here.append(pod.uid)
        assert not any(ledger.overcommitted(name) for name in ledger.states)
