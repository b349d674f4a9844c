"""Real processes and plugins that take their time: a burst goes to nodes in use, and to as few of them as will do."""

from __future__ import annotations

import pytest

from tests.support.worlds.controller_rig import pod, share

T4 = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2, "delay_s": 0.4}
NAMES = [f"p{at:02d}" for at in range(16)]


@pytest.mark.parametrize(("policy", "nodes"), [("binpack", 1), ("pack", 1), ("spread", 6)])
async def test_a_burst_goes_where_its_policy_says_although_plugins_are_slow(rig, tmp_path, policy, nodes):
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"policy: {policy}\n")
    async with rig(nodes=[{"name": f"t4-{at}", "plugin": T4} for at in range(6)]) as world:
        await world.controller(f"--settings={settings}")
        await world.add(*(pod(name, share(1000)) for name in NAMES))
        found = [await world.phase(name, deadline_s=60.0) for name in NAMES]
        assert len({one["spec"]["nodeName"] for one in found}) == nodes
