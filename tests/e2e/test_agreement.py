"""kube-scheduler and the ledger judge the same pods on the same nodes of a real API server alike."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.judging.agreement import run
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.realapi import RealApi

# More are judged by scripts/agree.
_VERDICTS: Final = 1_000


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
