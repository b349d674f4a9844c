"""The commands of the install page, run by a shell against a real API server as an operator runs them.

No kubelet runs here: what pods do is left out, but for the certificates, which the daily Job's process makes.
"""

import asyncio
import os
import re
import shutil
from base64 import b64decode
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.client import ApiClient
from sandbox.demo.processes import Processes
from tests.support.pages import page_commands
from tests.support.servers.creating import until_answered
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.manifests import Runner, daily
from tests.support.servers.realapi import RealApi
from tests.support.servers.restored import everything, finishing_namespaces, kept, restored
from tests.support.servers.stage_realapi import CERTS_MORE

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operators/install.md").read_text(encoding="utf-8")
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DEPLOYMENTS = "/apis/apps/v1/namespaces/cardshare-system/deployments"
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-memory": "1000"}}}]},
}


def block(section, having):
    """The one code block of a section of the page that has *having* in it."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (found,) = [each for each in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if having in each]
    return found


APPLY = block("2. Apply", "kustomization.yaml <<")
FAILED = 'failed calling webhook "create.pods.cardshare.io"'
REMOVE = block("Remove it", "kubectl delete")

ROTATE = block("Change the certificates at once", "rotate")
LEAKED = block("Change the certificates at once", "replicas=0")
OWN_CERTIFICATES = block("Certificates by cert-manager", "delete serviceaccount")
CONDITIONS = re.findall(r"^```\n(kubectl [^\n]* get pods (?:.*\n)*?)```$", PAGE, re.MULTILINE)
(AGAIN,) = re.findall(r"Without that Deployment: `(.*?)`", PAGE)
(MINDCLUSTER,) = re.findall(r"also run `(.*?)`", PAGE)
EVICT = "kubectl apply -f deploy/preemption.yaml"
(FROM_HAMI,) = page_commands.blocks(ROOT / "docs/operators/migrating-from-hami.md")
(WAY_OUT,) = re.findall(r"admitted meanwhile, unchecked: `(.*?)`", PAGE)


class Operator:
    """A shell in a checkout, with kubectl."""

    def __init__(self, api, admin, folder):
        self.api, self.admin, self.folder = api, admin, folder
        for name in ("deploy", "docs/examples"):
            shutil.copytree(ROOT / name, folder / "cardshare" / name)
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").symlink_to(api.binaries.kubectl)
        self.overlay = folder / "cardshare-cluster" / "kustomization.yaml"

    async def __call__(self, commands):
        """What *commands* say; each has to succeed."""
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-euc",
            commands,
            cwd=self.folder / "cardshare",
            env={
                "KUBECONFIG": str(self.api.kubeconfig),
                "HOME": str(self.folder),
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(300):
            out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()

    def edit(self, old, new):
        """Correct the overlay."""
        text = self.overlay.read_text(encoding="utf-8")
        assert old in text
        self.overlay.write_text(text.replace(old, new), encoding="utf-8")

    async def images(self):
        """What the Deployments and the CronJob run."""
        found = {
            container["image"]
            for one in await self.admin.list(DEPLOYMENTS)
            for container in one["spec"]["template"]["spec"]["containers"]
        }
        crons = await self.admin.list("/apis/batch/v1/namespaces/cardshare-system/cronjobs")
        (cron,) = crons
        template = cron["spec"]["jobTemplate"]["spec"]["template"]
        return found | {container["image"] for container in template["spec"]["containers"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory):
    """A server for all tests, its administrator, and what is there before the first."""
    binaries = binaries_or_skip()
    if binaries.kubectl is None:
        pytest.skip("kubectl is not here; name it with KUBECTL")
    async with RealApi(binaries, logs=logs_folder("install-page", tmp_path_factory)) as api:
        ca_pem = await asyncio.to_thread(api.ca_file.read_bytes)
        async with ApiClient(server=api.url, token=api.admin_token, ca_pem=ca_pem) as admin:
            yield api, admin, await kept(admin, installs=True)


@pytest_asyncio.fixture(loop_scope="session")
async def operator(server, tmp_path):
    """What a test makes goes in the end."""
    api, admin, before = server
    async with restored(admin, before), finishing_namespaces(admin):
        yield Operator(api, admin, tmp_path)


async def make_certificates(operator):
    """What the keeper's pod does once its image is there."""
    cron_job = await operator.admin.get("/apis/batch/v1/namespaces/cardshare-system/cronjobs/cardshare-certs")
    async with Processes(operator.api.logs, os.environ) as processes:
        runner = Runner(api=operator.api, admin=operator.admin, processes=processes, folder=operator.folder)
        await runner.finish("certs", daily([{"kind": "CronJob", **cron_job}]), CERTS_MORE)


async def test_applied_again_after_mistakes_removed_and_installed_again_at_once(operator):
    before = await everything(operator.admin)
    await operator(APPLY)
    # A wrong image is corrected.
    operator.edit("HOST/cardshare", "registry.example/cardshare")
    assert "configured" in await operator("kubectl apply -k ../cardshare-cluster")
    assert await operator.images() == {"registry.example/cardshare:0.2.0"}
    # While nothing can be pulled, a pod with cards is refused with a word; the page says how to admit it meanwhile.
    await until_answered(operator.admin, POD, r"create\.pods\.cardshare\.io.*cardshare-webhook")
    await operator(WAY_OUT)
    await until_answered(operator.admin, POD)
    # Half an installation is completed.
    await operator(
        "kubectl -n cardshare-system delete deployment cardshare-webhook; "
        "kubectl -n cardshare-system delete secret cardshare-webhook-tls"
    )
    await operator("kubectl apply -k ../cardshare-cluster")
    await make_certificates(operator)
    assert await operator.admin.get(f"{DEPLOYMENTS}/cardshare-webhook")
    # What the page removes is all, twice as well as once.
    for _ in range(2):
        await operator(REMOVE)
        assert {path for path in await everything(operator.admin) if "/events/" not in path} <= set(before)
    await operator("kubectl apply -k ../cardshare-cluster")
    await make_certificates(operator)
    await operator(REMOVE)
    assert {path for path in await everything(operator.admin) if "/events/" not in path} <= set(before)


async def test_while_nothing_can_be_pulled_a_deployment_says_why_and_gets_its_pods_by_the_pages_way_out(operator):
    if operator.api.binaries.kube_controller_manager is None:
        pytest.skip("kube-controller-manager not found; name it with KUBE_CONTROLLER_MANAGER")
    manager = await operator.api.start_controller_manager()
    await operator(APPLY)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": POD["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    apps = "/apis/apps/v1/namespaces/default/deployments"
    await operator.admin.create(apps, {"metadata": {"name": "web"}, "spec": spec})

    async def eventually(found):
        async with asyncio.timeout(60):
            while not await found():  # noqa: ASYNC110 (the API server tells nobody)
                await asyncio.sleep(0.2)

    async def told():
        events = await operator.admin.list("/api/v1/namespaces/default/events")
        return any(one["reason"] == "FailedCreate" and FAILED in one["message"] for one in events)

    async def made():
        return len(await operator.admin.list("/api/v1/namespaces/default/pods")) == 2

    try:
        await eventually(told)
        assert not await made()
        await operator(WAY_OUT)
        await eventually(made)
    finally:
        await operator.api.stop_child(manager)


async def trusted(operator):
    """The caBundles of both webhook configurations."""
    paths = (WEBHOOKS, WEBHOOKS.replace("mutating", "validating"))
    found = [await operator.admin.get(f"{path}/cardshare") for path in paths]
    return {entry["clientConfig"].get("caBundle", "") for one in found for entry in one["webhooks"]}


async def test_of_an_authority_whose_key_has_leaked_nothing_stays(operator):
    await operator(APPLY)
    await make_certificates(operator)
    secrets = "/api/v1/namespaces/cardshare-system/secrets"
    before = await operator.admin.get(f"{secrets}/cardshare-ca")
    assert await trusted(operator) == {before["data"]["ca.crt"]}
    # As with the page.
    await operator.admin.create(secrets, {"metadata": {"name": "cardshare-web-tls"}, "data": before["data"]})
    await operator(LEAKED)
    assert await trusted(operator) == {""}
    assert not [one for one in await operator.admin.list(secrets) if one["metadata"]["name"].startswith("cardshare-")]
    assert (await operator.admin.get(f"{DEPLOYMENTS}/cardshare-certs-keeper"))["spec"]["replicas"] == 1
    await make_certificates(operator)
    after = await operator.admin.get(f"{secrets}/cardshare-ca")
    assert await trusted(operator) == {after["data"]["ca.crt"]}
    assert b64decode(after["data"]["ca.crt"]).count(b"BEGIN CERTIFICATE") == 1
    await operator(REMOVE)


async def test_the_other_commands_of_the_page_do_what_it_says(operator):
    before = await everything(operator.admin)
    await operator(APPLY)
    await operator.admin.create("/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
    await operator(MINDCLUSTER)
    await operator(EVICT)
    jobs = "/apis/batch/v1/namespaces/cardshare-system/jobs"
    rotate, _, done = ROTATE.partition("kubectl -n cardshare-system delete job")
    for name, commands, wanted in (("again", AGAIN, "ensure"), ("cardshare-rotate", rotate, "rotate")):
        await operator(commands)
        (container,) = (await operator.admin.get(f"{jobs}/{name}"))["spec"]["template"]["spec"]["containers"]
        assert container["args"][0] == wanted
    # Else the namespace's end takes them, for which no controller is here.
    await operator(f"kubectl -n cardshare-system delete job again{done}")
    assert len(CONDITIONS) == 2
    for commands in CONDITIONS:
        await operator(commands)
    await operator.admin.create(WEBHOOKS, {"metadata": {"name": "hami-webhook"}})
    await operator("kubectl -n kube-system create deployment hami-scheduler --image=hami")
    await operator(FROM_HAMI.text)
    hami = "/apis/apps/v1/namespaces/kube-system/deployments/hami-scheduler"
    assert (await operator.admin.get(hami))["spec"]["replicas"] == 0
    await operator("kubectl -n kube-system delete deployment hami-scheduler")
    await operator(OWN_CERTIFICATES)
    left = await everything(operator.admin)
    assert not [path for path in left if "cardshare-certs" in path or path.endswith("cardshare-ca")]
    await operator("kubectl apply -k ../cardshare-cluster")
    await operator(REMOVE)
    await operator("kubectl delete namespace mindx-dl")
    assert {path for path in await everything(operator.admin) if "/events/" not in path} <= set(before)
