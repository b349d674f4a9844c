"""Nodes, pods and texts of the NVIDIA share dialects for hypothesis."""

from typing import Any, Final

from hypothesis import strategies as st

from core.dialects.gpushare.memory import GpuMemory
from core.dialects.gpushare.number import GpuNumber
from core.dialects.vgpu.dialect import Vgpu
from core.model import Container, Node, NodeName, Pod, PodUid
from core.settings import DialectName, Policy
from core.tables import ExclusiveRule, Tables
from tests.support.devices.cards import A100, TABLES, V100, container, record, share_node, vgpu_node
from tests.support.devices.catalogs import catalog_of

RULED: Final = Tables(vgpu=TABLES.vgpu, exclusive_rules=(ExclusiveRule(labels=frozenset({("team", "a")})),))
CATALOG: Final = catalog_of(Vgpu(), GpuMemory(), GpuNumber())

policies = st.sampled_from(tuple(Policy))

_hami_core = st.builds(
    lambda memory, slots, model, healthy: {"memory": memory, "slots": slots, "model": model, "healthy": healthy},
    st.sampled_from((16, 16, 24)),
    st.sampled_from((1, 3, 10)),
    st.sampled_from((V100, V100, "NVIDIA-Tesla T4")),
    st.sampled_from((True, True, True, False)),
)
_mig = st.builds(lambda healthy: {"memory": 40960, "model": A100, "healthy": healthy, "mode": "mig"}, st.booleans())


def _register(cards: list[dict[str, Any]]) -> str:
    return "".join(record(f"GPU-{number}", **card) for number, card in enumerate(cards))


registers = st.one_of(
    st.lists(_hami_core, min_size=1, max_size=5).map(_register),
    st.lists(_mig, min_size=1, max_size=3).map(_register),
)
nodes: st.SearchStrategy[tuple[DialectName, Node]] = st.one_of(
    registers.map(lambda register: (DialectName("vgpu"), vgpu_node(register))),
    registers.map(lambda register: (DialectName("vgpu"), vgpu_node(register))),
    st.builds(
        lambda cards, each: (
            DialectName("gpu_memory"),
            share_node({"volcano.sh/gpu-number": cards, "volcano.sh/gpu-memory": cards * each}, unhealthy="1"),
        ),
        st.integers(1, 5),
        st.sampled_from((16, 24)),
    ),
    st.integers(1, 5).map(
        lambda cards: (DialectName("gpu_number"), share_node({"volcano.sh/gpu-number": cards}, unhealthy="1"))
    ),
)


def _limits(dialect: DialectName, number: int, memory: int, cores: int, percent: int) -> Container:
    match dialect:
        case "gpu_memory":
            return Container(name="c", limits={"volcano.sh/gpu-memory": str(memory)})
        case "gpu_number":
            return Container(name="c", limits={"volcano.sh/gpu-number": str(number)})
        case _ if percent:
            return container(number=number, percent=percent, cores=cores)
        case _:
            return container(number=number, memory=memory, cores=cores)


_preferences = st.sampled_from(
    (
        {},
        {},
        {},
        {"nvidia.com/use-gputype": "V100"},
        {"nvidia.com/nouse-gputype": "T4"},
        {"cardshare.io/avoid-cards": "0"},
        {"volcano.sh/vgpu-nouse-gpuuuid": "GPU-1"},
        {"scheduling.k8s.io/group-name": "g", "volcano.sh/vgpu-podgroup-policy": "spread"},
    )
)


def pods(dialect: DialectName, scale: int = 1) -> st.SearchStrategy[Pod]:
    """Pods that ask for something in *dialect*; memory in steps of *scale*."""
    return st.builds(
        lambda number, memory, cores, percent, notes, team, uid: Pod(
            uid=PodUid(f"p{uid}"),
            namespace="default",
            name=f"p{uid}",
            labels={"team": team},
            annotations=notes,
            containers=(_limits(dialect, number, memory * scale, cores, percent),),
        ),
        st.sampled_from((1, 1, 1, 2, 3)),
        st.integers(1, 24),
        st.sampled_from((0, 0, 25, 50, 60, 100)),
        st.sampled_from((0, 0, 0, 1, 50, 100)),
        _preferences,
        st.sampled_from("ab"),
        st.integers(0, 10**9),
    )


# Text that means trouble to somebody who splits at the separators of these protocols.
ugly = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            (",", ":", ";", "[", "]", "-", " ", "GPU-0", "NVIDIA", "group1", "9" * 40, "-1", "1e9", "٣", "\x00")
        ),
        max_size=60,
    ).map("".join),
    st.sampled_from(("," * 16_000, ":" * 16_000, "GPU-0,NVIDIA,1,1:" * 900, "a," * 20_000, "9" * 16_000, "[" * 16_000)),
)

NODE_A: Final = NodeName("node-a")
