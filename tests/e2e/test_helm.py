"""The chart by helm itself on a real API server: installed, tested, upgraded and uninstalled, also under other names.

What README.md and docs/operators/install.md have people run is run here, with a packed chart and another image.
No kubelet and no controller of Jobs runs: the test does with hooks and the daily Job what they do, as the
processes that they name.
"""

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import ssl
import sys
from base64 import b64decode
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml

from sandbox.client import ApiClient, ApiStatusError
from sandbox.demo.processes import Processes
from scripts.building.release.build import packed
from tests.support.servers import go_tools
from tests.support.servers.balancer import balancer
from tests.support.servers.cert_manager import cert_manager, define
from tests.support.servers.creating import until_answered
from tests.support.servers.deployed import deployed
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.helm import CHART
from tests.support.servers.manifests import NAMESPACE, Runner, kubectl
from tests.support.servers.realapi import RealApi
from tests.support.servers.restored import everything, kept, restored
from tests.support.worlds.forking import forked

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
REGISTERED = "volcano.sh/node-vgpu-register"
CARDS = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}
PAIRS = ("webhook-tls", "controller-tls")
SECRETS = ("ca", *PAIRS)
OF_CERT_MANAGER = ("cert-manager-ca", *PAIRS)
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:cardshare-controller"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": CARDS}}]}}


class Helm:
    """helm on one server, with somebody who runs its hooks."""

    def __init__(self, program, api, admin, processes, folder):
        self.program, self.api, self.admin = program, api, admin
        self.processes, self.folder = processes, folder
        self.said = {}

    async def __call__(self, *words, fails=False):
        home = {name: str(self.folder / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        process = await asyncio.create_subprocess_exec(
            self.program,
            *words,
            env={"KUBECONFIG": str(self.api.kubeconfig), "HOME": str(self.folder), "PATH": "", **home},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(240):
            out, _ = await process.communicate()
        assert bool(process.returncode) is fails, f"{out.decode()}\n{self.said}"
        return out.decode()

    async def run(self, name, spec, namespace):
        """The exit code of a container, run as its account."""
        (container,) = spec["containers"]
        _, _, module = container["command"]
        token = await self.api.token_for(spec["serviceAccountName"], namespace)
        kubeconfig = self.api.write_kubeconfig(self.folder / f"{name}.kubeconfig", token)
        running = await self.processes.start(name, module, (*container["args"], f"--kubeconfig={kubeconfig}"))
        async with asyncio.timeout(120):
            code = await running.process.wait()
        self.said[name] = running.log_tail()
        return code

    @asynccontextmanager
    async def hooks(self, namespace):
        """The pods of tests are run as they come."""
        running = asyncio.create_task(self._run_hooks(namespace), name="hooks")
        try:
            yield
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def _run_hooks(self, namespace):
        pods = f"/api/v1/namespaces/{namespace}/pods"
        seen = set()
        while True:
            for one in await self.admin.list(pods):
                uid, name = one["metadata"]["uid"], one["metadata"]["name"]
                is_hook = "helm.sh/hook" in one["metadata"].get("annotations", {})
                if uid in seen or not is_hook or one["metadata"].get("deletionTimestamp"):
                    continue
                seen.add(uid)
                code = await self.run(f"{name}-{len(seen)}", one["spec"], namespace)
                status = {"phase": "Failed" if code else "Succeeded"}
                await self.admin.patch(f"{pods}/{name}/status", {"status": status})
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory):
    """helm, and a server for all tests, its administrator, and what is there before the first.

    Among that are the kinds of cert-manager: a busy server may take more than a minute to stop serving one.
    """
    program = go_tools.find(go_tools.HELM, os.environ)
    if program is None:
        pytest.skip("helm is not here; name one with CARDSHARE_HELM, or build it: tests.support.servers.go_tools")
    issuer = go_tools.find(go_tools.CERT_MANAGER, os.environ)
    async with RealApi(binaries_or_skip(), logs=logs_folder("helm", tmp_path_factory)) as api:
        if issuer is not None:
            await define(api, issuer)
        ca_pem = await asyncio.to_thread(api.ca_file.read_bytes)
        async with ApiClient(server=api.url, token=api.admin_token, ca_pem=ca_pem) as admin:
            yield program, api, admin, await kept(admin, installs=True)


@pytest_asyncio.fixture(loop_scope="session")
async def helm(server, tmp_path_factory):
    """What a test makes goes in the end."""
    program, api, admin, before = server
    async with restored(admin, before), Processes(api.logs, os.environ, launch=forked) as processes:
        yield Helm(program, api, admin, processes, tmp_path_factory.mktemp("helm"))


async def make_ready(helm, namespace, name):
    """What the cluster and the processes bring about: a node with a card, ready pods, a holder of the Lease."""
    have = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "10000", "volcano.sh/vgpu-cores": "100"}
    have |= {"pods": "10", "cpu": "8", "memory": "8Gi"}
    register = {REGISTERED: "n-0,10,10000,NVIDIA-T4,true,hami-core:"}
    status = {"allocatable": have, "capacity": have, "conditions": [{"type": "Ready", "status": "True"}]}
    await helm.admin.create("/api/v1/nodes", {"metadata": {"name": "n", "annotations": register}, "status": status})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for component in ("webhook", "controller"):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}-{component}"
        template = (await helm.admin.get(path))["spec"]["template"]
        for at in range(2):
            pod = f"{name}-{component}-{at}"
            metadata = {"name": pod, "labels": template["metadata"]["labels"]}
            await helm.admin.create(pods, {"metadata": metadata, "spec": {**template["spec"], "nodeName": "n"}})
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await helm.admin.patch(f"{pods}/{pod}/status", {"status": ready})
    held = {"holderIdentity": f"{name}-controller-0", "leaseDurationSeconds": 3600}
    held["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}-controller"
    await helm.admin.patch(lease, {"spec": held})
    return [f"{pods}/{name}-{component}-{at}" for component in ("webhook", "controller") for at in range(2)]


def later(folder):
    """The chart of a later version."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    about |= {"version": "99.0.0", "appVersion": "99.0.0"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    return chart


def earlier(folder):
    """The chart of an earlier version, which has no value `kueue`."""
    chart = folder / "earlier"
    shutil.copytree(CHART, chart)
    (chart / "templates/rights-kueue.yaml").unlink()
    flag = r" *\{\{- if \$\.Values\.kueue\.enabled \}\}\n.*\n *\{\{- end \}\}\n"
    files = {
        "values.yaml": r"kueue:\n  enabled: false\n",
        "values.schema.json": '"kueue", ',
        "templates/controller.yaml": flag,
    }
    for name, pattern in files.items():
        text, count = re.subn(pattern, "", (chart / name).read_text(encoding="utf-8"))
        assert count == 1, name
        (chart / name).write_text(text, encoding="utf-8")
    return chart


async def trusted(helm, name):
    """What the API server trusts of the webhook, entry by entry."""
    kinds = (f"{ADMISSION}/{kind}webhookconfigurations/{name}" for kind in ("mutating", "validating"))
    found = [await helm.admin.get(path) for path in kinds]
    return [entry["clientConfig"].get("caBundle") for one in found for entry in one["webhooks"]]


async def held(helm, namespace, name, parts=SECRETS):
    """What the Secrets of certificates hold."""
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    return {part: (await helm.admin.get(f"{path}-{part}"))["data"] for part in parts}


async def make_certificates(helm, namespace, name):
    """The daily Job runs."""
    daily = await helm.admin.get(f"/apis/batch/v1/namespaces/{namespace}/cronjobs/{name}-certs")
    spec = daily["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert await helm.run("daily", spec, namespace) == 0, helm.said


@pytest.mark.parametrize(("namespace", "name"), [("cardshare-system", "cardshare"), ("elsewhere", "shares")])
async def test_it_is_installed_tested_upgraded_and_leaves_nothing_behind(helm, tmp_path, namespace, name):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await helm.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    await helm.admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    before = await everything(helm.admin)
    release = ("release", "-n", namespace)
    values = ("--set", f"name={name}", "--set", "image.repository=host/cardshare")
    async with helm.hooks(namespace):
        # As scripts/release packs it.
        chart = helm.folder / "cardshare.tgz"
        await asyncio.to_thread(chart.write_bytes, packed(CHART))
        assert "STATUS: deployed" in await helm("install", release[0], str(chart), *release[1:], *values)
        await make_certificates(helm, namespace, name)
        secrets = await held(helm, namespace, name)
        assert b64decode(secrets["webhook-tls"]["tls.crt"]).startswith(b"-----BEGIN CERTIFICATE-----")
        assert {part for part, data in secrets.items() if "ca.key" in data} == {"ca"}
        bundles = await trusted(helm, name)
        assert all(bundles)
        # Nobody serves it yet: doctor says so, and so does helm.
        assert "failed" in (await helm("test", *release, fails=True)).lower()
        assert not [path for path in await everything(helm.admin) if path.endswith(f"/{name}-doctor")]
        own = await make_ready(helm, namespace, name)
        assert "Phase:          Succeeded" in await helm("test", *release)
        said = await helm("upgrade", release[0], str(later(tmp_path)), *release[1:], *values, "--set", "replicas=3")
        assert "REVISION: 2" in said
        deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        assert (await helm.admin.get(f"{deployments}/{name}-webhook"))["spec"]["replicas"] == 3
        # The pair that is served stays, and is trusted still.
        assert await held(helm, namespace, name) == secrets
        assert await trusted(helm, name) == bundles
        # What certs made anew is helm's as before: it is upgraded, and goes with everything else.
        for part in SECRETS:
            await helm.admin.delete(f"/api/v1/namespaces/{namespace}/secrets/{name}-{part}")
        await make_certificates(helm, namespace, name)
        remade = await held(helm, namespace, name)
        assert "REVISION: 3" in await helm("upgrade", release[0], str(tmp_path / "chart"), *release[1:], *values)
        assert await held(helm, namespace, name) == remade
        for path in own:
            await helm.admin.delete(path, grace_s=0)
        await helm.admin.delete("/api/v1/nodes/n")
        await helm("uninstall", *release)
    left = await everything(helm.admin)
    assert {path for path in left if path not in before and "/events/" not in path} == set()
    await until_answered(helm.admin, POD)


async def test_a_second_installation_is_refused_with_the_name_of_the_first_which_can_be_upgraded(helm):
    for name in ("first", "second"):
        await helm.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    chart = str(CHART)
    await helm("install", "shares", chart, "-n", "first")
    for words in (("cardshare", "-n", "second"), ("shares", "-n", "second"), ("other", "-n", "first")):
        said = await helm("install", *words[:1], chart, *words[1:], "--set", "name=other", fails=True)
        assert "cardshare is already installed, as release shares in namespace first, and a cluster has one" in said
        assert "helm uninstall shares -n first" in said
    await helm("upgrade", "shares", chart, "-n", "first", "--set", "replicas=3")
    await helm("template", "cardshare", chart, "-n", "second")
    await helm("uninstall", "shares", "-n", "first")
    await helm("install", "cardshare", chart, "-n", "second")
    await helm("uninstall", "cardshare", "-n", "second")


async def test_a_second_installation_is_refused_with_the_account_of_the_first_if_kubectl_made_that(helm):
    policies = str(ROOT / "deploy/base/policy.yaml")
    for name in (NAMESPACE, "second"):
        await helm.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    await kubectl(helm.api, "apply", "-f", policies)
    for words in (("cardshare", "-n", "second"), ("cardshare", "-n", NAMESPACE, "--set", "name=other")):
        said = await helm("install", *words[:1], str(CHART), *words[1:], "--take-ownership", fails=True)
        assert (
            f"already installed, not by helm, with the controller's account {CONTROLLER}, and a cluster has one" in said
        )
    # The same one: helm says that it is somebody else's, and may be told to take it over.
    assert "invalid ownership metadata" in await helm("install", "cardshare", str(CHART), "-n", NAMESPACE, fails=True)
    await helm("install", "cardshare", str(CHART), "-n", NAMESPACE, "--take-ownership")
    await helm("uninstall", "cardshare", "-n", NAMESPACE)


async def test_the_way_out_of_the_notes_admits_pods_and_an_upgrade_brings_the_webhooks_back(helm, tmp_path):
    await helm.admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    said = await helm("install", "cardshare", str(earlier(tmp_path)), "-n", NAMESPACE)
    assert 'image.repository is "cardshare"' in said
    await until_answered(helm.admin, POD, "failed calling webhook")
    (way_out,) = re.findall(r"^ *kubectl (delete mutatingwebhookconfiguration\S+ \S+)$", said, re.MULTILINE)
    await kubectl(helm.api, *way_out.split())
    await until_answered(helm.admin, POD)
    (correct,) = re.findall(r"^Correct it: helm (upgrade .*)$", said, re.MULTILINE)
    # By a newer chart too, which has more values.
    await helm(*correct.replace("CHART", str(CHART)).split())
    assert len(await trusted(helm, "cardshare")) > 2
    await helm("uninstall", "cardshare", "-n", NAMESPACE)


async def hold_what_cert_manager_made(helm, namespace, name):
    """Wait until both pairs are by the authority that is there, and the API server trusts it."""
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(ApiStatusError, KeyError):
                secrets = await held(helm, namespace, name, OF_CERT_MANAGER)
                authority = secrets["cert-manager-ca"]["tls.crt"]
                by_it = {one["ca.crt"] for one in secrets.values()} == {authority}
                bundles = [b64decode(bundle or "") for bundle in await trusted(helm, name)]
                if by_it and all(b64decode(authority) in bundle for bundle in bundles):
                    return
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("is_upgrade", [False, True], ids=["installed", "upgraded"])
async def test_with_cert_manager_it_is_tested_and_leaves_nothing_but_the_secrets_of_that(helm, is_upgrade):
    namespace, name = "elsewhere", "shares"
    await helm.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    await helm.admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    release = ("release", str(CHART), "-n", namespace, "--set", f"name={name},image.repository=host/cardshare")
    async with cert_manager(helm.api), helm.hooks(namespace):
        before = await everything(helm.admin)
        own = [f"/api/v1/namespaces/{namespace}/secrets/{name}-{part}" for part in SECRETS] if is_upgrade else []
        if is_upgrade:
            await helm("install", *release)
        for path in own:
            await helm.admin.patch(path, {"metadata": {"finalizers": ["tests/late"]}})
        await helm("upgrade", "--install", *release, "--set", "certificates.issuer=cert-manager")
        await hold_what_cert_manager_made(helm, namespace, name)
        # helm removes the Secrets of the earlier revision last: after cert-manager has signed.
        for path in own:
            await helm.admin.patch(path, {"metadata": {"finalizers": None}})
        await hold_what_cert_manager_made(helm, namespace, name)
        pods = await make_ready(helm, namespace, name)
        assert "Phase:          Succeeded" in await helm("test", "release", "-n", namespace)
        for path in pods:
            await helm.admin.delete(path, grace_s=0)
        await helm.admin.delete("/api/v1/nodes/n")
        await helm("uninstall", "release", "-n", namespace)
        left = {path for path in await everything(helm.admin) if path not in before and "/events/" not in path}
        assert left == {f"/api/v1/namespaces/{namespace}/secrets/{name}-{part}" for part in OF_CERT_MANAGER}
        theirs, _ = await kubectl(helm.api, "get", "issuers,certificates", "-A", "-o", "name")
        assert theirs == ""


CLIENTS = 6
# More where somebody has the time, as with test_rollout.
CREATES = int(os.environ.get("CARDSHARE_CREATES", "300"))
RENDERS = """#!{python}
import sys
sys.path.insert(0, {root!r})
import yaml
from tests.support.servers.manifests import reached_at, text_of
documents = [one for one in yaml.safe_load_all(sys.stdin) if one]
sys.stdout.write(text_of(reached_at(documents, {port})))
"""


# Of a client, after each: as many calls as the cores take would be the test's own cost.
PAUSE_S = 0.2


class Load:
    """Pods with cards, created (dry runs) by several clients, a connection for each."""

    def __init__(self, api):
        self.api = api
        self.completed, self.plain, self.lost = [], [], []
        self._numbers = itertools.count()

    @property
    def answered(self):
        return len(self.completed) + len(self.plain) + len(self.lost)

    async def goes_on(self):
        """Wait until more calls were answered."""
        enough = self.answered + 5 * CLIENTS
        while self.answered < enough:  # noqa: ASYNC110 (nobody tells of it)
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def running(self, at_least):
        over, before = asyncio.Event(), self.answered
        context = ssl.create_default_context(cafile=self.api.ca_file)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        headers = {"Authorization": f"Bearer {self.api.admin_token}"}

        async def create(session):
            while not over.is_set() or self.answered - before < at_least:
                await self._create(session)
                await asyncio.sleep(PAUSE_S)

        async with aiohttp.ClientSession(connector=connector, headers=headers) as session, asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(create(session))
            try:
                yield
            finally:
                over.set()

    async def _create(self, session):
        name = f"p-{next(self._numbers)}"
        container = {"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-memory": "1000"}}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        pods = f"{self.api.url}/api/v1/namespaces/default/pods?dryRun=All"
        async with session.post(pods, json=body) as answer:
            found = await answer.json()
        if answer.status != 201:
            self.lost.append((answer.status, found.get("message", found)))
        elif "volcano.sh/vgpu-number" in found["spec"]["containers"][0]["resources"]["limits"]:
            self.completed.append(name)
        else:
            self.plain.append(name)


@pytest.mark.slow
async def test_no_create_is_lost_in_an_upgrade_and_none_is_refused_while_it_is_removed(helm, tmp_path):
    space = f"/apis/apps/v1/namespaces/{NAMESPACE}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await helm.admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    runner = Runner(api=helm.api, admin=helm.admin, processes=helm.processes, folder=tmp_path)
    load, release = Load(helm.api), ("-n", NAMESPACE)
    async with helm.hooks(NAMESPACE), balancer() as front:
        renders = tmp_path / "renders"
        renders.write_text(RENDERS.format(python=sys.executable, root=str(ROOT), port=front.port), encoding="utf-8")
        renders.chmod(0o700)
        values = (*release, "--post-renderer", str(renders), "--set", "image.repository=host/cardshare")
        await helm("install", "release", str(CHART), *values)
        await make_certificates(helm, NAMESPACE, "cardshare")
        async with deployed(runner, f"{space}/deployments/cardshare-webhook", front) as webhook:
            await webhook.settled()
            async with load.running(CREATES):
                await load.goes_on()
                changed = ("--set", "replicas=3", "--set", "settings.policy=spread")
                assert "REVISION: 2" in await helm("upgrade", "release", str(later(tmp_path)), *values, *changed)
                await webhook.settled()
            assert (load.lost, load.plain, front.refused) == ([], [], 0)
            assert (webhook.started, webhook.codes) == (5, [0, 0])
            # Nobody asks any more before nobody answers.
            completed = len(load.completed)
            async with load.running(CREATES):
                await load.goes_on()
                await helm("uninstall", "release", *release)
                await webhook.settled()
            assert load.lost == []
            assert len(load.completed) + len(load.plain) >= completed + CREATES
            assert load.plain != [], "and pods with cards are created afterwards"
            assert webhook.codes == [0] * 5
