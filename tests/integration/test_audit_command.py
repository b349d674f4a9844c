"""``python -m controller audit`` as a process, on the embedded cluster."""

import asyncio
import os
import sys

from sandbox.demo.processes import clean_environ
from tests.support.worlds.controller_rig import IDS, NODES, PODS, pod, share


async def audited(world, *flags):
    """The exit code and the lines."""
    kubeconfig = world.write_admins_kubeconfig()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controller",
        "audit",
        f"--kubeconfig={kubeconfig}",
        *flags,
        env=clean_environ(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120.0)
    return process.returncode, out.decode().splitlines(), err.decode()


async def test_it_is_silent_on_a_sound_cluster_and_names_what_is_wrong(rig):
    async with rig(nodes=NODES[:1], expects=("holds 90000 MiB",)) as world:
        await world.controller()
        await world.add(pod("a", share(9000)))
        found = await world.phase("a")
        code, lines, _ = await audited(world)
        assert (code, lines[-1].split(": ")[1]) == (0, "0 findings")
        # Whoever writes past admission.
        forged = found["metadata"]["annotations"][IDS].replace(",9000,", ",90000,")
        await world.client.patch(f"{PODS}/a", {"metadata": {"annotations": {IDS: forged}}})
        code, lines, _ = await audited(world)
        assert code == 1
        assert [
            line for line in lines if line.startswith("overcommitted: ") and "90000" in line and "default/a" in line
        ], lines


async def test_it_tells_what_it_cannot_read_in_one_line(rig):
    async with rig() as world:
        code, lines, err = await audited(world, "--kubeconfig=/nowhere/config")
        assert (code, lines) == (2, [])
        assert "/nowhere/config" in err
        assert "Traceback" not in err
