"""Situations that people reported in public, as folders beside this checkout; skipped where these are not there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.worlds.situations import Situation

CASES = Path(__file__).parents[3] / "shared" / "cases"
FOLDERS = {one.parent.name: one.parent for one in CASES.glob("*/README")}
CHECKS: dict[str, Callable[[Situation], None]] = {}

ALLOCATED = "hami.io/vgpu-devices-allocated"
CORE_POLICY, DEVICES = "GPU_CORE_UTILIZATION_POLICY", "NVIDIA_VISIBLE_DEVICES"


def case(name: str) -> Callable[[Callable[[Situation], None]], Callable[[Situation], None]]:
    def known(check: Callable[[Situation], None]) -> Callable[[Situation], None]:
        CHECKS[name] = check
        return check

    return known


@case("advice-in-mib-not-units")
def advice_is_in_the_units_of_the_manifest(found: Situation) -> None:
    assert "at most 22 units" in found.pods["p23"].waits


@case("ascend-core-name-of-config")
def the_name_of_cores_is_the_maps(found: Situation) -> None:
    assert found.pods["soft"].node == "s"


@case("ascend-memory-factor")
def memory_of_a_chip_is_counted_in_the_maps_unit(found: Situation) -> None:
    assert found.pods["gib32"].annotations["huawei.com/Ascend910B3"] == '[{"UUID":"NPU-0","temp":"vir10_3c_32g"}]'


@case("conf-argument-singular")
def a_key_of_a_plugin_that_nobody_reads_is_noted_with_the_one_that_was_meant(found: Situation) -> None:
    (note,) = [note for note in found.notes if "unknown" in note]
    assert note.endswith("plugins[0].argument: unknown, has no effect; did you mean 'arguments'?")


@case("core-policy-force")
def a_policy_for_cores_that_tightens_is_admitted(found: Situation) -> None:
    assert [one.denied for one in found.pods.values()] == ["", "", ""]
    assert [one.node for one in found.pods.values()] == ["v", "h", ""]


@case("did-you-mean-core")
def what_is_proposed_for_a_chip_is_a_chip(found: Situation) -> None:
    assert "did you mean huawei.com/Ascend910B4?" in found.pods["p"].waits


@case("hami-device-config-2.5-to-2.9")
def hamis_map_is_read_by_hamis_grammar(found: Situation) -> None:
    assert (found.problems, found.notes) == ([], ())
    first, second = found.pods.values()
    assert first.annotations[ALLOCATED] == "GPU-0,NVIDIA,3000,0:;"
    assert first.object["spec"]["runtimeClassName"] == "nvidia"
    assert "nvidia.com/gpu" not in first.limits()
    assert second.object["spec"]["schedulerName"] == "cardshare"


@case("hami-in-another-namespace")
def a_node_that_offers_shares_by_another_name_is_told_with_what_to_set(found: Situation) -> None:
    (complaint,) = found.complaints
    assert "it offers 10 nvidia.com/vgpu" in complaint
    assert "hami_config_namespace" in complaint


@case("hami-keys-its-webhook-acts-on")
def what_hamis_webhook_did_by_its_map_is_done_or_noted(found: Situation) -> None:
    (pod,) = found.pods.values()
    assert pod.limits()["nvidia.com/gpu"] == "2"
    assert (pod.variables(0), pod.variables(1)) == ({CORE_POLICY: "force"}, {DEVICES: "void"})
    assert any("gpuCorPolicy: unknown, has no effect; did you mean 'gpuCorePolicy'?" in note for note in found.notes)


@case("init-before-sidecar")
def an_init_container_ends_before_the_sidecar_behind_it_starts(found: Situation) -> None:
    assert found.pods["p"].node == "g"


@case("known-geometries-is-hamis-map")
def of_hamis_map_volcano_takes_the_chips_alone(found: Situation) -> None:
    assert (found.problems, found.complaints) == ([], [])
    assert {name: one.node for name, one in found.pods.items()} == {"hami": "h", "vgpu": "v"}


@case("kubelet-account-after-factor-change")
def what_kubelet_has_no_account_for_is_not_placed(found: Situation) -> None:
    assert found.pods["a"].node == "n"
    assert "1000 of 5000 volcano.sh/vgpu-memory" in found.pods["b"].waits


@case("nvidia-plugin-took-the-name")
def no_share_is_sold_where_another_plugin_answers_kubelet(found: Situation) -> None:
    assert [one.node for one in found.pods.values()] == ["", ""]
    assert "another device plugin" in found.complaints[0]


@case("plugin-1.9.0-count-only")
def a_plugin_that_advertises_the_number_alone_is_served(found: Situation) -> None:
    assert found.pods["p"].annotations["volcano.sh/vgpu-ids-new"] == "GPU-0,NVIDIA,2000,0:"


@pytest.mark.skipif(not FOLDERS, reason=f"{CASES} is not there")
def test_every_situation_has_its_check():
    assert set(FOLDERS) <= set(CHECKS)


@pytest.mark.skipif(not FOLDERS, reason=f"{CASES} is not there")
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_situation_from_the_field_ends_as_it_should(name: str):
    CHECKS[name](Situation(FOLDERS[name]))
