"""The controller as a process of its own, beside a cluster and its device plugins."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from sandbox.client import ApiStatusError
from sandbox.demo.processes import Processes, free_port
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from tests.support.worlds.controller_rig import IDS, NODES, PODS, SHARE, pod, promised, share
from tests.support.worlds.cores import which_core


async def test_containers_receive_what_was_promised_to_their_pods(rig):
    kubelet = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST, admission_delay_s=0.1)
    async with rig(kubelet=kubelet) as world:
        await world.controller()
        await world.add(*[pod(f"p{i}", share(1000 + i)) for i in range(6)])
        for i in range(6):
            found = await world.phase(f"p{i}")
            env = world.records.of(f"default/p{i}")["main"]
            assert [(env["NVIDIA_VISIBLE_DEVICES"], 1000 + i)] == promised(found)
            assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{1000 + i}m"


async def test_processes_run_on_the_core_that_the_tests_run_on(rig):
    async with rig() as world:
        running = await world.controller()
        mapped = await asyncio.to_thread(Path(f"/proc/{running.process.pid}/maps").read_text)
        assert ("core_others__mypyc" in mapped) == (which_core() == "compiled")


async def test_two_pods_that_ask_a_quantity_of_memory_share_one_card(rig):
    async with rig() as world:
        await world.controller()
        await world.add(pod("a", {SHARE: "1024"}), pod("b", {SHARE: "1024"}))
        for name in ("a", "b"):
            await world.phase(name)
            env = world.records.of(f"default/{name}")["main"]
            assert (env["VOLCANO_GPU_ALLOCATED"], env["NVIDIA_VISIBLE_DEVICES"]) == ("1024", "0")


async def test_a_pod_that_fits_nowhere_is_told_why_and_placed_once_something_frees(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()
        await world.add(pod("a", share(15000)), pod("b", share(15000)))
        await world.phase("a")
        await world.phase("b")
        await world.add(pod("late", share(4000)))
        condition = await world.waits("late", "360 of 4000 MiB free")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")

        async def told():
            events = await world.client.list("/api/v1/namespaces/default/events")
            return [
                e for e in events if e["involvedObject"].get("name") == "late" and e["reason"] == "FailedScheduling"
            ]

        (event,) = await world.until(told)
        assert event["message"] == condition["message"]
        await world.client.delete(f"{PODS}/a", grace_s=0)
        await world.phase("late")


async def test_an_annotation_on_a_waiting_pod_has_it_decided_anew(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()
        await world.add(pod("p", share(100), annotations={"nvidia.com/use-gputype": "A100"}))
        await world.waits("p", "no card of a type")
        changed = {"metadata": {"annotations": {"nvidia.com/use-gputype": "T4"}}}
        await world.client.patch(f"{PODS}/p", changed)
        await world.phase("p")


async def test_a_pod_past_admission_that_asks_too_much_is_told_so_in_the_words_of_admission(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()
        await world.add(pod("p", share(100, cores=150)))
        await world.waits("p", "volcano.sh/vgpu-cores: found '150'; write a whole number no larger than 100")


async def test_a_restarted_controller_promises_nothing_twice(rig):
    async with rig(nodes=NODES[:1]) as world:
        first = await world.controller()
        await world.add(*[pod(f"p{i}", share(7000)) for i in range(3)])
        for i in range(3):
            await world.phase(f"p{i}")
        first.signal(signal.SIGKILL)
        await first.process.wait()
        await world.add(pod("fits", share(7000)), pod("waits", share(7000)))
        await world.controller()
        await world.until(lambda: _running(world, 4))
        await world.waits("waits" if await _is_bound(world, "fits") else "fits", "0/1 nodes are available")
        used: dict[str, int] = {}
        for one in await world.client.list(PODS):
            for card, memory in promised(one):
                used[card] = used.get(card, 0) + memory
        assert sorted(used.values()) == [14000, 14000]


async def test_a_controller_killed_in_the_middle_loses_no_pod_and_mistakes_none_for_another(rig):
    async with rig(nodes=NODES[:1]) as world:
        first = await world.controller()
        await world.add(*[pod(f"p{i}", share(500 + i)) for i in range(16)])
        await world.until(lambda: _at_least(world, 5))
        first.signal(signal.SIGKILL)
        await first.process.wait()
        await world.controller()
        for i in range(16):
            found = await world.phase(f"p{i}")
            env = world.records.of(f"default/p{i}")["main"]
            assert [(env["NVIDIA_VISIBLE_DEVICES"], 500 + i)] == promised(found)


async def _at_least(world, count):
    pods = await world.client.list(PODS)
    return sum(bool(one["spec"].get("nodeName")) for one in pods) >= count


async def _running(world, count):
    pods = await world.client.list(PODS)
    return sum(one["status"].get("phase") == "Running" for one in pods) == count


async def _is_bound(world, name):
    return bool((await world.get(name))["spec"].get("nodeName"))


async def test_a_pod_that_its_plugin_refused_is_cleared_so_that_the_next_one_is_served_its_own(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()
        (plugin,) = world.kubelet.plugins("t4-a")
        plugin.faults.fail_next = 1
        await world.add(pod("bad", share(1000)))
        await world.phase("bad", "Failed")
        await world.add(pod("good", share(2000)))
        found = await world.phase("good")
        env = world.records.of("default/good")["main"]
        assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT_0"]) == (promised(found)[0][0], "2000m")
        assert (await world.get("bad"))["metadata"]["annotations"]["volcano.sh/devices-to-allocate"] == ""


async def test_metrics_have_volcanos_names_and_ours(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()
        await world.add(pod("p", share(3000, cores=50)))
        await world.phase("p")
        _, text = await world.http("/metrics")
        card = (await world.get("p"))["metadata"]["annotations"][IDS].split(",")[0]
        labels = f'devID="{card}",NodeName="t4-a"'
        for name, value in (("shared_number", 1), ("allocated_memory", 3000), ("allocated_cores", 50)):
            assert f"volcano_vgpu_device_{name}{{{labels}}} {value}\n" in text
        assert f"volcano_vgpu_device_memory_limit{{{labels}}} 15360\n" in text
        assert 'cardshare_binds_total{outcome="bound"} 1.0\n' in text
        assert 'cardshare_lists_total{kind="pods"} 1.0\n' in text
        assert 'cardshare_lists_total{kind="device-config"} 1.0\n' in text
        assert "certain_pod" not in text


async def test_a_request_to_end_ends_the_process_with_0(rig):
    async with rig() as world:
        running = await world.controller()
        assert await world.processes.stop(running) == 0
        assert "Traceback" not in running.log_tail(100)


async def test_a_configuration_that_cannot_be_used_ends_with_2_and_every_problem(tmp_path):
    settings = tmp_path / "cardshare.yaml"
    settings.write_text("policy: sideways\nturn_wait_max_s: -1\n")
    async with Processes(tmp_path / "logs", os.environ) as processes:
        running = await processes.start("controller", "controller", ("--settings", str(settings)))
        assert await running.process.wait() == 2
        said = running.log_tail(100)
        assert "policy: found 'sideways'" in said
        assert "turn_wait_max_s: found '-1'" in said
        wrong = ("--listen", "nowhere", "--lease-duration", "soon")
        running = await processes.start("other", "controller", wrong)
        assert await running.process.wait() == 2
        assert "--listen (CARDSHARE_LISTEN): found 'nowhere'" in running.log_tail(100)
        assert "--lease-duration (CARDSHARE_LEASE_DURATION): found 'soon'" in running.log_tail(100)


KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no such file; check the path"),
        ("{{{", "it is not YAML"),
        (
            KUBECONFIG.replace("context: here", "context: there"),
            "there is no context 'there'; its contexts are: 'here'",
        ),
        (KUBECONFIG.replace(", user: u", ""), "context 'here' names no user; name one of its users: 'u'"),
        (
            KUBECONFIG.replace("{name: u,", "{name: v,"),
            "names user 'u', which is not there; name one of its users: 'v'",
        ),
        (KUBECONFIG.replace("https://", ""), "cluster 'c': server: found '127.0.0.1:1'; write a URL"),
    ],
    ids=["no such file", "no YAML", "no such context", "no user", "no such user", "no URL"],
)
async def test_a_kubeconfig_that_cannot_be_right_ends_with_2_and_one_line(tmp_path, text, words):
    wrong = tmp_path / "wrong"
    if text:
        wrong.write_text(text)
    async with Processes(tmp_path / "logs", os.environ) as processes:
        running = await processes.start("controller", "controller", ("--kubeconfig", str(wrong)))
        assert await running.process.wait() == 2
        (line,) = running.log_tail(100).splitlines()
    assert line.startswith(f"controller: kubeconfig {wrong}: ")
    assert words in line


async def test_a_token_of_the_pod_that_is_not_there_yet_is_waited_for(tmp_path):
    listen = f"127.0.0.1:{free_port()}"
    async with Processes(tmp_path / "logs", os.environ) as processes, aiohttp.ClientSession() as session:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}
        running = await processes.start("controller", "controller", ("--listen", listen), environ)
        await processes.ready(running, f"http://{listen}/healthz")
        async with session.get(f"http://{listen}/readyz") as answer:
            assert (answer.status, "credentials: in a pod, but " in await answer.text()) == (503, True)
        assert await processes.stop(running) == 0


async def test_an_api_server_that_is_not_there_is_said_and_waited_for(rig):
    async with rig(nodes=()) as world:
        kubeconfig = world.folder / "away"
        kubeconfig.write_text(await world.kubeconfig(server=f"https://127.0.0.1:{free_port()}"))
        running = await world.controller(kubeconfig=kubeconfig, wait=False)
        await world.not_ready_because("unreachable: list configmaps")
        assert "Traceback" not in running.log_tail(100)
        assert await world.processes.stop(running) == 0


async def test_a_missing_right_is_named_with_its_verb(rig):
    async with rig(nodes=()) as world:
        kubeconfig = world.folder / "nobody"
        kubeconfig.write_text(await world.kubeconfig("nobody", "default"))
        running = await world.controller(kubeconfig=kubeconfig, wait=False)
        text = await world.not_ready_because("forbidden: list configmaps")
        assert "system:serviceaccount:default:nobody" in text
        assert "Traceback" not in running.log_tail(100)


async def test_an_unreadable_register_sets_one_node_aside_with_an_event(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.controller()
        await world.add_unreadable_node("bad")

        async def told():
            return [one for one in await world.told("bad", "CardsUnusable") if "nonsense" in one["message"]]

        (event,) = await world.until(told)
        assert event["type"] == "Warning"
        _, text = await world.http("/metrics")
        assert 'cardshare_nodes_set_aside{dialect="vgpu"} 1.0\n' in text
        await world.add(pod("p", share(100)))
        await world.phase("p")


async def test_somebody_elses_binding_is_not_repeated(rig):
    async with rig(nodes=NODES[:1]) as world:
        await world.add(pod("p", share(100)))
        target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "t4-a"}}
        await world.client.create(f"{PODS}/p/binding", target)
        await world.controller()
        await world.add(pod("q", share(100)))
        await world.phase("q")
        with pytest.raises(ApiStatusError, match="already assigned"):
            await world.client.create(f"{PODS}/p/binding", target)
