"""kube-scheduler and the ledger judge the same pods on the same nodes of a real API server alike."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.judging.agreement import run
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.realapi import RealApi

# Enough for kube-scheduler to refuse by each of its filters that pods of ours meet; scripts/agree judges more.
_VERDICTS: Final = 400
# What each of them says. Source: kubernetes, pkg/scheduler/framework/plugins.
_REFUSALS: Final = (
    "Insufficient cpu",
    "Insufficient memory",
    "exceed max volume count",
    "unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode",
    "didn't have free ports",
    "didn't match PersistentVolume's node affinity",
    "didn't match Pod's node affinity/selector",
    "didn't match Pod's required features",
    "didn't match pod affinity rules",
    "didn't match pod anti-affinity rules",
    "didn't match pod topology spread constraints (missing required label)",
    "didn't match pod topology spread constraints,",
    "didn't satisfy existing pods anti-affinity rules",
    "had untolerated taint(s)",
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_no_node_takes_a_pod_for_one_and_refuses_it_for_the_other(tmp_path_factory: pytest.TempPathFactory):
    binaries = binaries_or_skip()
    if binaries.kube_scheduler is None:
        pytest.skip("kube-scheduler not found; name it with KUBE_SCHEDULER")
    async with RealApi(binaries, logs=logs_folder("agreement", tmp_path_factory)) as api:
        agreement, differences = await run(api, _VERDICTS, seed=1)
    assert differences == []
    assert min(agreement.verdicts.values()) > _VERDICTS // 5
    assert agreement.explained.total() < _VERDICTS // 20
    assert [one for one in _REFUSALS if not any(one in told for told in agreement.refusals)] == []
