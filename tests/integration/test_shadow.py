"""A controller that only looks on beside Volcano's scheduler, and the way from that scheduler to this one and back."""

import json
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import yaml

from certs.files import ensure
from certs.pair import WantedPair
from cli.__main__ import run
from cli.options import parse
from sandbox.demo.processes import free_port
from tests.support.worlds.controller_rig import IDS, NODES, PODS, pod, promised, share
from tests.support.worlds.volcano import NAMES

SHADOW = list(yaml.safe_load_all((Path(__file__).parents[2] / "deploy/shadow.yaml").read_text(encoding="utf-8")))
PLACE = "cardshare-shadow"
SCHEDULERS = "/api/v1/namespaces/volcano-system/pods"
# What it may ask for; a test of the manifests compares its reads with the controller's.
GIVEN = {
    (verb, group, kind)
    for one in SHADOW
    if one["kind"] == "ClusterRole"
    for rule in one["rules"]
    for group in rule.get("apiGroups", ())
    for kind in rule["resources"]
    for verb in rule["verbs"]
}
REVIEWS = {
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
}


def volcanos(name, limits):
    found = pod(name, limits)
    found["spec"]["schedulerName"] = "volcano"
    return found


async def bind(world, name, card, memory_mib, node="t4-a"):
    """What Volcano's scheduler writes to give a pod part of a card: annotations first, then the Binding."""
    held, now_s = f"{card},NVIDIA,{memory_mib},0:", int(time.time())
    marks = {
        IDS: held,
        "volcano.sh/devices-to-allocate": held,
        "volcano.sh/vgpu-node": node,
        "volcano.sh/vgpu-time": str(now_s),
        "volcano.sh/bind-time": str(now_s),
        "volcano.sh/bind-phase": "allocating",
    }
    await world.client.patch(f"{PODS}/{name}", {"metadata": {"annotations": marks}})
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    await world.client.create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


async def imported(world, name, card, memory_mib):
    """A pod that Volcano's scheduler has placed, running."""
    await world.add(volcanos(name, share(memory_mib)))
    await bind(world, name, card, memory_mib)
    return await world.phase(name)


class Looking:
    """A controller that runs as deploy/shadow.yaml has it, and who asks it."""

    def __init__(self, world):
        self.world = world
        self.port, self.certs = free_port(), world.folder / "shadow-certs"

    async def start(self):
        # Documents first: the namespace that the account is in.
        await self.world.apply([one for one in SHADOW if one["kind"] != "Deployment"])
        ensure(self.certs, WantedPair(dns_names=("localhost",), days=2, ca_days=9), datetime.now(UTC))
        kubeconfig = self.world.folder / "shadow.kubeconfig"
        kubeconfig.write_text(await self.world.kubeconfig(PLACE, PLACE), encoding="utf-8")
        flags = ("--shadow", "--scheduler-name", "volcano", "--trust-namespaces", "kube-system,volcano-system")
        page = ("--preview-listen", f"127.0.0.1:{self.port}", "--cert-dir", str(self.certs))
        return await self.world.controller(*flags, *page, kubeconfig=kubeconfig, name="shadow")

    async def asked(self):
        """How ``kubectl cards`` reaches it."""
        token = self.world.folder / "shadow.token"
        token.write_text(await self.world.token(PLACE, PLACE, audiences=("cardshare-controller",)), encoding="ascii")
        words = ("--controller", f"https://localhost:{self.port}", "--token-file", str(token))
        return (*words, "--controller-ca", str(self.certs / "ca.crt"))

    async def page(self, wanted=lambda found: True):
        """/v1/shadow, once it is as *wanted*."""
        token = await self.world.token(PLACE, PLACE, audiences=("cardshare-controller",))
        context = ssl.create_default_context(cafile=self.certs / "ca.crt")
        url = f"https://localhost:{self.port}/v1/shadow"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:

            async def found():
                try:
                    async with session.get(url, ssl=context) as answer:
                        told = await answer.json()
                except aiohttp.ClientError:
                    return None
                return told if answer.status == 200 and wanted(told) else None

            return await self.world.until(found)


def by_name(told):
    return {one["pod"].partition("/")[2]: one for one in told["pods"]}


async def test_it_reads_and_writes_nothing_whatever_happens_in_the_cluster(rig):
    async with rig(nodes=NODES) as world:
        looking = Looking(world)
        await looking.start()
        running = await imported(world, "imported", "GPU-t4-a-0", 9000)
        await world.add(volcanos("fits", share(4000)), volcanos("never", share(90_000)), pod("others", share(1000)))
        told = await looking.page(lambda found: len(found["pods"]) == 2 and found["bound"] == 1)
        assert (by_name(told)["fits"]["fits"], by_name(told)["never"]["code"]) == (True, "CS502")
        await world.client.delete(f"{PODS}/imported")
        await looking.page(lambda found: found["bound"] == 0)
        assert running["metadata"]["annotations"][IDS]
        # Its account alone; the reviews are those of whoever asked for the page.
        used = await world.used_rights(PLACE, PLACE)
        assert used <= GIVEN
        assert {verb for verb, *_ in used - REVIEWS} == {"list", "watch"}
        for name in ("fits", "never"):
            found = await world.get(name)
            assert "nodeName" not in found["spec"]
            assert not [one for one in found["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
        events = await world.client.get("/api/v1/namespaces/default/events")
        assert not [one for one in events["items"] if one.get("reportingComponent", "").startswith("cardshare")]


async def test_from_volcanos_scheduler_to_this_one_and_back_without_a_restart(rig, capsys):
    async with rig(nodes=NODES[:1]) as world:
        await world.ensure("/api/v1/namespaces", "volcano-system")
        container = {"name": "c", "image": "i"}
        labelled = {"name": "volcano-scheduler-0", "labels": {"app": "volcano-scheduler"}}
        await world.client.create(SCHEDULERS, {"metadata": labelled, "spec": {"containers": [container]}})
        before = {
            "one": await imported(world, "one", "GPU-t4-a-0", 9000),
            "two": await imported(world, "two", "GPU-t4-a-1", 9000),
        }
        # 1. Look on.
        looking = Looking(world)
        shadow = await looking.start()
        await world.add(volcanos("waits", share(5000)), volcanos("large", share(9000)))
        told = await looking.page(lambda found: len(found["pods"]) == 2)
        assert (by_name(told)["waits"]["node"], by_name(told)["large"]["code"]) == ("t4-a", "CS501")
        assert (told["bound"], told["findings_in_all"]) == (2, 0)
        await imported(world, "three", "GPU-t4-a-1", 5000)
        told = await looking.page(lambda found: sum(found["bindings"].values()) == 1)
        assert await run(parse(["shadow", *await looking.asked()], {}), {}) == 0
        text = capsys.readouterr().out
        assert "Bindings seen: " in text
        assert "default/waits: would go to t4-a: GPU-t4-a-0" in text
        # 2. Preflight.
        kubeconfig = str(world.write_admins_kubeconfig())
        await run(parse(["doctor", "-o", "json", "--kubeconfig", kubeconfig], {}), {})
        found = {one["code"] for one in json.loads(capsys.readouterr().out)["findings"]}
        assert not found & {"CS611", "CS612", "CS613", "CS614", "CS643"}
        # 3. Switch: while Volcano's scheduler is there, its pods are left alone.
        assert await world.processes.stop(shadow) == 0
        ours = await world.controller(*NAMES)

        async def left_alone():
            status, text = await world.http("/readyz", "text/plain")
            return status == 200 and "volcano-scheduler-0" in text

        # A process that is ready does not lead yet.
        await world.until(left_alone)
        await world.client.delete(f"{SCHEDULERS}/volcano-scheduler-0")
        ((card, memory_mib),) = promised(await world.phase("waits"))
        assert (card, memory_mib) == ("GPU-t4-a-0", 5000)
        await world.waits("large", "CS501")
        before |= {name: await world.get(name) for name in ("three", "waits")}
        # 4. Back.
        assert await world.processes.stop(ours) == 0
        await world.client.delete(f"{PODS}/three")
        await imported(world, "five", "GPU-t4-a-1", 5000)
        for name, was in before.items():
            if name != "three":
                now = await world.get(name)
                assert now["status"] == was["status"]
                assert (now["metadata"]["uid"], promised(now)) == (was["metadata"]["uid"], promised(was))
                assert len(world.records.of(f"default/{name}")) == 1
