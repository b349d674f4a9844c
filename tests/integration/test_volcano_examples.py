"""The Volcano Jobs of docs/examples/volcano-jobs, the guides' and others, from their creation to their end."""

from sandbox.demo import jobs
from sandbox.demo.stage import NODES
from tests.support.worlds import volcano

# Those of the demo's nodes that the Jobs are declared to go to.
_NODES = tuple(node for node in NODES if node["name"].startswith(("share-", "t4-a", "gpu-", "mind-a", "number-a")))


async def test_the_jobs_of_the_examples_run_and_complete(rig):
    manifests, declared = jobs.read()
    async with rig(nodes=_NODES) as world:
        await volcano.install(world.client)
        await world.controller(*volcano.NAMES)
        async with jobs.controllers(world.client):
            verdicts = await jobs.play(world.client, manifests, declared, within_s=60.0)
    assert [(verdict.claim, problem) for verdict in verdicts for problem in verdict.problems] == []
    assert len(verdicts) == 10
