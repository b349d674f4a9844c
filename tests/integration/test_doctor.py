"""``kubectl cards doctor`` against an API server, by an account with the viewer's rights alone."""

import asyncio
import json
from base64 import b64encode
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import yaml

from certs.authority import new_authority
from cli.__main__ import run
from cli.doctor import diagnose
from cli.options import parse
from tests.support.worlds.controller_rig import NODES

BASE = Path(__file__).parents[2] / "deploy/base"
SYSTEM = "/api/v1/namespaces/cardshare-system"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/cardshare-system/leases"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
NEVER = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "80000"}


def documents(*names):
    return [each for name in names for each in yaml.safe_load_all((BASE / name).read_text(encoding="utf-8"))]


def certificates():
    return b64encode(new_authority("cardshare", 90, datetime.now(UTC)).cert_pem).decode()


@asynccontextmanager
async def installed(rig, *, beside=()):
    """A cluster in which everything is installed as it is shipped; a kubeconfig of who has the viewer's rights."""
    async with rig(nodes=NODES) as world:
        shipped = documents("viewer.yaml", "settings.yaml", "policy.yaml", "admission.yaml")
        bundle = certificates()
        for one in shipped:
            for entry in one.get("webhooks", ()) if one["kind"].endswith("WebhookConfiguration") else ():
                entry["clientConfig"]["caBundle"] = bundle
                # None of these scenarios is about what the webhook answers, and none runs.
                entry["namespaceSelector"] = {"matchLabels": {"nobody": "has-this"}}
        await world.apply([*shipped, *beside])
        for i in range(2):
            await add_own_pod(world, f"cardshare-webhook-{i}", "webhook")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "cardshare-controller-0", "leaseDurationSeconds": 3600, "renewTime": now}
        await world.client.create(LEASES, {"metadata": {"name": "cardshare-controller"}, "spec": spec})
        kubeconfig = world.folder / "viewer.kubeconfig"
        kubeconfig.write_text(await world.kubeconfig("viewer", "default"), encoding="utf-8")
        await world.client.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "viewer"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cardshare-viewer"},
                "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}],
            },
        )
        yield world, str(kubeconfig)


async def add_own_pod(world, name, component):
    labels = {"app.kubernetes.io/name": "cardshare", "app.kubernetes.io/component": component}
    spec = {"nodeName": "t4-a", "containers": [{"name": "c", "image": "cardshare"}]}
    await world.client.create(f"{SYSTEM}/pods", {"metadata": {"name": name, "labels": labels}, "spec": spec})
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    await world.client.patch(f"{SYSTEM}/pods/{name}/status", {"status": status})


async def add_pod(world, name, limits, scheduler="cardshare"):
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    body = {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}
    await world.client.create("/api/v1/namespaces/default/pods", body)


async def doctor(kubeconfig, *words):
    return await run(parse(["doctor", *words, "--kubeconfig", kubeconfig], {}), {})


async def found(kubeconfig, capsys):
    """The codes of all findings but notes, each with its subject; the exit code."""
    code = await doctor(kubeconfig, "-o", "json")
    report = json.loads(capsys.readouterr().out)
    return {(one["code"], one["subject"]) for one in report["findings"] if one["level"] != "note"}, code


async def test_what_is_installed_as_it_is_shipped_has_nothing_to_look_at(rig, capsys):
    async with installed(rig) as (_, kubeconfig):
        assert await found(kubeconfig, capsys) == (set(), 0)
        assert await doctor(kubeconfig) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "nothing to look at"


async def test_a_controller_whose_clock_differs_from_the_readers_holds_its_lease(rig, capsys):
    async with installed(rig) as (world, kubeconfig):

        async def renew(time):
            spec = {"leaseDurationSeconds": 15, "renewTime": f"2026-01-01T00:00:{time:09.6f}Z"}
            await world.client.patch(f"{LEASES}/cardshare-controller", {"spec": spec})

        async def keep():
            for moment in range(1, 60_000):
                await renew(moment / 1000)

        await renew(0)
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(keep())
            assert await found(kubeconfig, capsys) == (set(), 0)
            keeping.cancel()


async def test_the_clock_of_the_api_server_counts_and_a_wrong_one_here_is_told(rig, capsys, monkeypatch):
    judged = diagnose

    def ahead(transport, options, now_s):
        return judged(transport, options, now_s + 100 * 86400)

    monkeypatch.setattr("cli.doctor.diagnose", ahead)
    async with installed(rig) as (_, kubeconfig):
        # By the clock here, all certificates have expired, and the Lease too.
        assert await found(kubeconfig, capsys) == (set(), 0)
        assert await doctor(kubeconfig) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("CS604")]
        assert "s ahead of the API server's" in line


async def test_the_lease_of_volcanos_scheduler_is_read_only_if_both_schedulers_have_one_name(rig, capsys):
    async with installed(rig) as (world, kubeconfig):
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cardshare-viewer"
        rules = (await world.client.get(role))["rules"]
        for rule in rules:
            if "leases" in rule["resources"]:
                rule["resourceNames"] = ["cardshare-controller"]
        await world.client.patch(role, {"rules": rules})
        assert await found(kubeconfig, capsys) == (set(), 0)
        names = {"data": {"cardshare.yaml": "scheduler_names: [cardshare, volcano]"}}
        await world.client.patch(f"{SYSTEM}/configmaps/cardshare-settings", names)
        assert await found(kubeconfig, capsys) == ({("CS601", "lease volcano-system/volcano")}, 3)


async def test_each_fault_of_the_cluster_is_told_with_its_code(rig, capsys):
    async with installed(rig) as (world, kubeconfig):
        await world.client.delete(f"{LEASES}/cardshare-controller")
        await world.client.delete(f"{REGISTRATIONS}/validatingadmissionpolicybindings/pods.cardshare.io")
        await world.client.delete(f"{REGISTRATIONS}/validatingadmissionpolicies/bindings.cardshare.io")
        changed = await world.client.get(f"{REGISTRATIONS}/mutatingwebhookconfigurations/cardshare")
        changed["webhooks"][0]["failurePolicy"] = "Ignore"
        changed["webhooks"][1]["clientConfig"]["caBundle"] = ""
        await world.client.patch(f"{REGISTRATIONS}/mutatingwebhookconfigurations/cardshare", changed)
        await world.client.patch(f"{SYSTEM}/configmaps/cardshare-settings", {"data": {"cardshare.yaml": "polcy: x"}})
        await world.client.delete(f"{SYSTEM}/pods/cardshare-webhook-1")
        await add_pod(world, "huge", NEVER)
        codes, code = await found(kubeconfig, capsys)
        assert codes == {
            ("CS602", "configuration"),
            ("CS622", "mutatingwebhookconfiguration cardshare"),
            ("CS626", "mutatingwebhookconfiguration cardshare"),
            ("CS627", "validatingadmissionpolicy bindings.cardshare.io"),
            ("CS627", "validatingadmissionpolicybinding pods.cardshare.io"),
            ("CS629", "deployment cardshare-system/cardshare-webhook"),
            ("CS632", "lease cardshare-system/cardshare-controller"),
            ("CS641", "pod default/huge"),
        }
        assert code == 4
        assert await doctor(kubeconfig) == 4
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith("CS641 risk  pod default/huge: no node could ever take it") for line in lines)
        assert lines[-1] == "8 to look at"


async def test_why_no_pod_of_the_webhook_is_ready_is_said(rig, capsys):
    async with installed(rig) as (world, kubeconfig):
        waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
        container = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        status = {
            "phase": "Pending",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{**container, "state": {"waiting": waiting}}],
        }
        for i in range(2):
            await world.client.patch(f"{SYSTEM}/pods/cardshare-webhook-{i}/status", {"status": status})
        assert await doctor(kubeconfig) != 0
        (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("CS624")]
        assert "ImagePullBackOff: Back-off pulling image" in line


async def test_resources_of_another_name_and_lines_without_effect_are_read_from_the_config_maps(rig, capsys):
    device = {"device-config.yaml": "nvidia:\n  resourceCountName: example.com/gpu\n"}
    conf = {"volcano-scheduler.conf": 'actions: "enqueue, preempt"\n'}
    maps = [
        {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "volcano-system"}},
        *(
            {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}, "data": data}
            for name, namespace, data in (
                ("volcano-vgpu-device-config", "kube-system", device),
                ("volcano-scheduler-configmap", "volcano-system", conf),
            )
        ),
    ]
    async with installed(rig, beside=maps) as (_, kubeconfig):
        codes, _ = await found(kubeconfig, capsys)
        assert ("CS625", "mutatingwebhookconfiguration cardshare") in codes
        assert ("CS625", "validatingwebhookconfiguration cardshare") in codes
        await doctor(kubeconfig)
        assert "CS603 note  configuration: volcano-system/volcano-scheduler-configmap: action 'preempt'" in (
            capsys.readouterr().out
        )


async def test_nodes_where_kubelet_chooses_cards_of_hami_are_told(rig, capsys):
    nodes = [{"name": "t4-a", "enablegetpreferredallocation": True}, {"name": "share-a", "operatingmode": "hami-core"}]
    data = {"config.json": json.dumps({"nodeconfig": nodes})}
    metadata = {"name": "hami-device-plugin", "namespace": "kube-system"}
    config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}
    async with installed(rig, beside=[config]) as (world, kubeconfig):
        await world.ensure("/api/v1/namespaces/kube-system/serviceaccounts", "hami-device-plugin")
        spec = {"serviceAccountName": "hami-device-plugin", "containers": [{"name": "p", "image": "hami:v2.10.0"}]}
        plugin = {"metadata": {"name": "plugin"}, "spec": spec}
        await world.client.create("/api/v1/namespaces/kube-system/pods", plugin)
        codes, _ = await found(kubeconfig, capsys)
        assert ("CS616", "node t4-a") in codes
        assert ("CS616", "node share-a") not in codes
        path = "/api/v1/namespaces/kube-system/configmaps/hami-device-plugin"
        await world.client.patch(path, {"data": {"config.json": "{"}})
        codes, _ = await found(kubeconfig, capsys)
        assert ("CS601", "configmap kube-system/hami-device-plugin") in codes


async def test_what_may_not_be_read_is_said_and_the_rest_is_judged(rig, capsys):
    async with installed(rig) as (world, kubeconfig):
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cardshare-viewer"
        rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]
        await world.client.patch(role, {"rules": rules})
        await add_pod(world, "huge", NEVER)
        codes, code = await found(kubeconfig, capsys)
        assert {subject for one, subject in codes if one == "CS601"} >= {
            "configmap cardshare-system/cardshare-settings",
            "lease cardshare-system/cardshare-controller",
            "mutatingwebhookconfigurations",
            "namespaces",
        }
        assert {one for one, _ in codes} == {"CS601", "CS641"}
        assert code == 3
        await world.client.patch(role, {"rules": []})
        assert await doctor(kubeconfig) == 1
        assert "nodes is forbidden" in capsys.readouterr().err


async def test_the_viewers_rights_are_enough_for_every_command_that_only_reads(rig, capsys, tmp_path):
    commands = (
        "get",
        "explain huge",
        "why huge",
        "waiting -A",
        "queues",
        "fits --memory 1000",
        "plan --for 1 x whole",
        "simulate --drain t4-a",
        f"snapshot -o {tmp_path}/cluster.json.gz",
    )
    async with installed(rig) as (world, kubeconfig):
        await add_pod(world, "huge", NEVER)
        for words in commands:
            assert await run(parse([*words.split(), "--kubeconfig", kubeconfig], {}), {}) in (0, 5, 6), words
            said = capsys.readouterr()
            assert "may not" not in said.err + said.out, words


async def test_another_name_and_namespace_are_looked_for(rig, capsys):
    name = "elsewhere"
    async with installed(rig) as (world, _):
        admin = str(world.write_admins_kubeconfig())
        assert await doctor(admin, "-n", name, "--name", name) == 4
        said = capsys.readouterr().out
        assert f"CS621 problem  mutatingwebhookconfiguration {name}: it does not exist" in said
        assert f"CS632 problem  lease {name}/{name}-controller" in said


async def test_preemption_that_is_on_without_its_rights_is_told(rig, capsys):
    async with installed(rig) as (world, _):
        data = {"cardshare.yaml": "preemption: true\n"}
        await world.client.patch(f"{SYSTEM}/configmaps/cardshare-settings", {"data": data})
        await add_own_pod(world, "cardshare-controller-0", "controller")
        await doctor(str(world.write_admins_kubeconfig()))
        told = capsys.readouterr().out
        account = "system:serviceaccount:cardshare-system:default"
        assert f"CS638 risk  {account}: preemption or reclaim is on, but it may not evict pods or list" in told


async def test_nothing_is_found_in_the_demo_while_everything_works(staged, capsys):
    async with staged() as stage:
        assert await found(str(stage.kubeconfig), capsys) == (set(), 0)


async def test_hamis_config_map_without_a_scheduler_that_may_bind_is_told_to_who_may_ask(rig, capsys):
    metadata = {"name": "hami-scheduler-device", "namespace": "kube-system"}
    there = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"device-config.yaml": "nvidia: {}"},
    }
    account = "system:serviceaccount:kube-system:hami-scheduler"
    async with installed(rig, beside=[there]) as (world, kubeconfig):

        async def codes():
            await doctor(kubeconfig, "-o", "json")
            told = json.loads(capsys.readouterr().out)["findings"]
            return {(one["code"], one["subject"]) for one in told if one["code"] in ("CS634", "CS635")}

        async def may(name, group, resource, namespace, subject):
            rules = [{"apiGroups": [group], "resources": [resource], "verbs": ["create"]}]
            api = "/apis/rbac.authorization.k8s.io/v1"
            await world.client.create(f"{api}/clusterroles", {"metadata": {"name": name}, "rules": rules})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            subjects = [{"kind": "ServiceAccount", "name": subject, "namespace": namespace}]
            body = {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
            await world.client.create(f"{api}/clusterrolebindings", body)

        assert await codes() == {("CS635", "subjectaccessreviews")}
        await may("asks", "authorization.k8s.io", "subjectaccessreviews", "default", "viewer")
        assert await codes() == {("CS634", account)}
        await may("binds", "", "pods/binding", "kube-system", "hami-scheduler")
        assert await codes() == set()
