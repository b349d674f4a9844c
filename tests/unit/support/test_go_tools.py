"""Where helm, promtool and cert-manager come from."""

import re

import pytest

from tests.support.servers import go_tools, realapi_binaries


def test_a_tool_that_is_named_is_taken_and_one_that_is_neither_named_nor_built_is_none(tmp_path):
    environ = {"PATH": "", "CARDSHARE_CACHE": str(tmp_path)}
    assert go_tools.find(go_tools.HELM, environ) is None
    assert str(go_tools.find(go_tools.HELM, environ | {"CARDSHARE_HELM": "/x/helm"})) == "/x/helm"


def test_without_go_it_says_what_to_name(tmp_path):
    with pytest.raises(go_tools.BuildFailedError, match="CARDSHARE_PROMTOOL"):
        go_tools.build(go_tools.PROMTOOL, {"PATH": "", "CARDSHARE_CACHE": str(tmp_path)})


@pytest.mark.parametrize("tool", [go_tools.HELM, go_tools.PROMTOOL], ids=lambda tool: tool.name)
def test_its_module_has_the_package_that_is_built(tool):
    assert f"tool {tool.package}\n" in (tool.module / "go.mod").read_text(encoding="utf-8")
    assert (tool.module / "go.sum").stat().st_size


def test_cert_manager_is_the_module_by_a_main_package_of_ours():
    assert go_tools.CERT_MANAGER.crds is not None
    module, _ = go_tools.CERT_MANAGER.crds
    assert f"\t{module} v" in (go_tools.CERT_MANAGER.module / "go.mod").read_text(encoding="utf-8")
    assert f'"{module}/pkg/controller"' in (go_tools.CERT_MANAGER.module / "main.go").read_text(encoding="utf-8")


def test_helm_renders_for_the_kubernetes_that_tests_run_on():
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)", realapi_binaries._go_mod())
    assert found is not None
    assert set(go_tools.HELM.stamps.values()) == set(found.groups())
