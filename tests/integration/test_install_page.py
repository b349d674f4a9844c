"""The install page as an operator follows it: its overlay, outside the checkout, is what kubectl makes objects of."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.servers.kustomized import overlay

ROOT = Path(__file__).parents[2]
PAGES = ("docs/operators/install.md", "docs/zh/operators/install.md")


def blocks(page):
    """The code blocks of *page*."""
    return re.findall(r"^```\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def built(tmp_path):
    """What kubectl makes of a page's overlay, if it names another overlay and has more lines."""
    kubectl = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here; name it with KUBECTL")
    shutil.copytree(ROOT / "deploy", tmp_path / "cardshare" / "deploy")

    def build(page, name, more="", base="", environ=None):
        (commands,) = [each for each in blocks(page) if "kustomization.yaml <<" in each]
        commands = commands.replace(
            "../cardshare/deploy/overlays/default", base or f"../cardshare/deploy/overlays/{name}"
        )
        made, _, folder = commands.partition("kubectl apply -k ")
        subprocess.run(["bash", "-ec", made], cwd=tmp_path / "cardshare", check=True)
        folder = tmp_path / "cardshare" / folder.strip()
        with (folder / "kustomization.yaml").open("a", encoding="utf-8") as file:
            file.write(more)
        done = subprocess.run(
            [kubectl, "kustomize", folder],
            env={**os.environ, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}

    return build


def images(objects):
    """The images that workloads run."""
    found = {}
    for (kind, name), one in objects.items():
        spec = one.get("spec", {})
        template = spec["jobTemplate"]["spec"]["template"] if kind == "CronJob" else spec.get("template")
        if template is not None:
            found[name] = [each["image"] for each in template["spec"]["containers"]]
    return found


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", ["default", "beside-volcano", "volcano-name", "cert-manager"])
def test_the_overlay_of_the_page_makes_all_objects_with_its_image(built, page, name):
    found = built(page, name)
    assert found.keys() == {(one["kind"], one["metadata"]["name"]) for one in overlay(name)}
    assert {image for several in images(found).values() for image in several} == {"HOST/cardshare:0.2.0"}


@pytest.mark.parametrize("page", PAGES)
def test_the_patch_of_the_page_trusts_another_namespace_in_both_processes(built, page):
    (patch,) = [each for each in blocks(page) if each.startswith("patches:") and "env/0" in each]
    found = built(page, "default", patch)
    for name in ("cardshare-controller", "cardshare-webhook"):
        (container,) = found["Deployment", name]["spec"]["template"]["spec"]["containers"]
        assert container["env"][0] == {"name": "CARDSHARE_TRUST_NAMESPACES", "value": "kube-system,mindx-dl"}


@pytest.mark.parametrize("page", PAGES)
def test_the_patch_of_the_page_has_every_process_log_in_another_format(built, page):
    (patch,) = [each for each in blocks(page) if each.startswith("patches:") and "--log-format" in each]
    found = built(page, "default", patch)
    for component in ("controller", "webhook", "certs-keeper"):
        (container,) = found["Deployment", f"cardshare-{component}"]["spec"]["template"]["spec"]["containers"]
        assert container["args"][-1] == "--log-format=logfmt"


@pytest.mark.parametrize("page", PAGES)
def test_a_git_repository_as_the_page_names_it_makes_the_objects_of_the_checkout(built, page, tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not here")
    (base,) = re.findall(r"`(https://GIT-HOST/[^`]+)`", (ROOT / page).read_text(encoding="utf-8"))
    served = tmp_path / "served" / "cardshare"
    shutil.copytree(ROOT / "deploy", served / "deploy")
    somebody = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
    for words in (["init", "-q"], ["add", "."], [*somebody, "commit", "-qm", "first"], ["tag", "TAG"]):
        subprocess.run(["git", *words], cwd=served, check=True)
    # git reads that address here; kubectl asks it for a file first, which nobody answers.
    environ = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{(tmp_path / 'served').as_uri()}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://GIT-HOST/",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    assert built(page, "default", base=base, environ=environ) == built(page, "default")


@pytest.mark.parametrize("page", PAGES)
def test_no_command_of_the_page_writes_into_the_checkout(page):
    text = "".join(blocks(page))
    assert not re.search(r"^[^#\n]*(?:> *(?!\.\.)|kustomize edit|sed -i)[^\n]*deploy/", text, re.MULTILINE)
