"""How many files a plain pod enters from the watch to its Binding, which is what a newcomer has to read."""

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.worlds.controller_rig import NODES, pod, share

# Lower it when the path becomes shorter. Before you raise it, check whether pods without the new feature must enter its
# file.
MAX_FILES: Final = 39


@pytest.mark.interpreted(reason="a trace does not see compiled functions")
async def test_a_plain_pod_enters_few_files(rig, tmp_path: Path):
    to = tmp_path / "walk"
    async with rig(nodes=NODES[:1]) as world:
        await world.controller(f"--walk={to}", module="tests.support.worlds.walking_controller")

        # Before that, a pod also waits for what earlier leaders may have sent.
        async def leads():
            return "cardshare_leading 1.0" in (await world.http("/metrics"))[1]

        await world.until(leads)
        await world.add(pod("p", share(1000)))
        await world.phase("p")

        async def ended():
            return to.exists()

        await world.until(ended)
    entered = to.read_text(encoding="utf-8").splitlines()
    files = list(dict.fromkeys(one.partition(":")[0] for one in entered))
    sys.stdout.write("\n".join((*entered, f"{len(files)} files\n")))
    assert "kube/transport.py" in files
    assert len(files) <= MAX_FILES
