"""Which tests of `tests/integration` are played on a real API server too, and which are not and why.

A test is a scenario if it asks for a fixture of `OPENERS`; each of those is played again by
`tests/e2e/test_scenarios.py`, unless it stands in `ONLY_HERE`. How one is written:
`tests.support.worlds.controller_rig`.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

Test = Callable[..., Any]

OPENERS: Final = frozenset({"rig", "staged", "shared_stage"})
_ROOM: Final = Path(__file__).parents[2] / "integration"
# Modules ("test_x") and single tests ("test_x::test_y") that are not played on a real API server, and why.
_NO_SERVER: Final = "no API server takes part in it"
_THE_DOUBLE: Final = "it judges the double; what a real server does too is put to both by e2e/test_double_is_honest"
_THE_PLAYERS: Final = "it judges the players, which serve every scenario on the real server as well"
_HOSTILE: Final = "its client does what no API server does; e2e calls the webhook by the API server itself"
_FAILS_ON_DEMAND: Final = "the server that it speaks to fails on demand, in the middle of answers too"
_NEVER_ASKS: Final = "what runs in it never gets as far as an API server"

ONLY_HERE: Final[Mapping[str, str]] = {
    "test_architectures": _NO_SERVER,
    "test_benchmarks": "each starts the server that it needs",
    "test_budgets": "e2e/test_workloads does it with the quotas that Kubernetes itself counts",
    "test_cards_page::test_each_command_is_shown": _NO_SERVER,
    "test_cards_page::test_every_field_is_listed_and_no_other": _NO_SERVER,
    "test_cards_page::test_the_schema_is_that_of_the_fields": _NO_SERVER,
    "test_certs_command": _NO_SERVER,
    "test_certs_in_cluster::test_a_kubeconfig_that_is_not_there_is_one_clear_line_and_exits_2": _NEVER_ASKS,
    "test_cli::test_a_closed_stream_is_no_traceback": _NEVER_ASKS,
    "test_cli::test_a_disk_that_is_full_is_told_in_one_line": _NEVER_ASKS,
    "test_cli::test_a_reader_that_has_seen_enough_is_no_error": _NEVER_ASKS,
    "test_cli::test_an_interrupt_ends_the_wait_for_a_server_quietly": _NEVER_ASKS,
    "test_cli::test_an_interrupt_while_modules_load_is_no_traceback": _NEVER_ASKS,
    "test_cli::test_check_and_version_ask_no_cluster": _NEVER_ASKS,
    "test_cli::test_no_api_server_named_is_an_error_with_a_remedy": _NEVER_ASKS,
    "test_cli::test_the_installed_command_starts_so": _NEVER_ASKS,
    "test_chaos": "`scripts/chaos --real` plays it on a real server, for minutes",
    "test_chart": _NO_SERVER,
    "test_compile": _NO_SERVER,
    "test_configuration_edits": "e2e/test_configuration_edits does it by kubectl, with the ConfigMap that is installed",
    "test_conform_all": _NO_SERVER,
    "test_controller_process::test_a_configuration_that_cannot_be_used_ends_with_2_and_every_problem": _NEVER_ASKS,
    "test_controller_process::test_a_kubeconfig_that_cannot_be_right_ends_with_2_and_one_line": _NEVER_ASKS,
    "test_controller_process::test_a_token_of_the_pod_that_is_not_there_yet_is_waited_for": _NEVER_ASKS,
    "test_demo": "the demo is about a cluster of its own, the embedded one",
    "test_docs_site": _NO_SERVER,
    "test_doctor": "its pods of ours are only said to run, which pod security of a real server refuses",
    "test_failed_calls": _NEVER_ASKS,
    "test_floods": _HOSTILE,
    "test_image_tree": _NO_SERVER,
    "test_install_page": "e2e/test_install_page runs its commands",
    "test_kube_causes": "the server that it speaks to is away, or none, in each way that there is",
    "test_kube_transport": _FAILS_ON_DEMAND,
    "test_kube_watches": _FAILS_ON_DEMAND,
    "test_listening": _NEVER_ASKS,
    "test_native_groups": "e2e/test_native_groups does it with the kinds that the server itself serves",
    "test_offline_image": _NO_SERVER,
    "test_page_commands": "e2e/test_install_page and e2e/test_helm run the commands of installing on a real server",
    "test_ports": _HOSTILE,
    "test_processes": _NO_SERVER,
    "test_promises": "e2e/test_double_is_honest puts the same promises to both servers",
    "test_release": _NO_SERVER,
    "test_sandbox_kubelet": _THE_PLAYERS,
    "test_sandbox_policies": _THE_DOUBLE,
    "test_sandbox_server": _THE_DOUBLE,
    "test_scripts": _NO_SERVER,
    "test_volcano_players": _THE_PLAYERS,
    "test_walk": "what a pod enters does not depend on the server",
    "test_webhook_process": _HOSTILE,
    "test_snapshot::test_a_file_that_is_no_snapshot_is_one_line": _NO_SERVER,
    "test_snapshot::test_a_wrong_command_is_one_line": _NEVER_ASKS,
    "test_simulate::test_a_wrong_command_is_one_line": _NEVER_ASKS,
    "test_snapshot::test_a_file_that_is_not_there_is_one_line": _NEVER_ASKS,
    "test_web": "e2e/test_scenarios plays test_web_in_cluster, with the rights that each caller has there",
    "test_web_attacks": _NO_SERVER,
    "test_wheel": _NO_SERVER,
    "test_webhook_rollout": "e2e/test_rollout does it with the API server as the client",
    "test_webhook_serving": _HOSTILE,
}

# Scenarios that `e2e/test_rights` plays on a real API server; no other test plays them there.
OF_RIGHTS: Final = (
    "test_denied_accounts::test_the_pod_tells_of_the_account",
    "test_groups_to_come::test_pods_wait_for_the_group_that_their_owner_asks_for_and_others_only_for_a_while",
    "test_locks_and_rights::test_nodes_are_locked_for_each_pod_while_volcanos_scheduler_shares_them",
    "test_network_topology::test_groups_are_placed_near_each_other_by_hyper_nodes",
    "test_preview::test_a_dry_run_is_told_where_the_pod_would_go_or_why_nowhere",
    "test_replicas::test_52_a_lease_that_is_deleted_or_edited_by_hand_is_mended_and_changes_no_leader",
    "test_volcano_jobs::test_a_job_waits_for_room_in_its_queue_and_says_so",
    "test_volumes::test_a_claim_that_waits_for_its_pod_is_bound_where_that_has_its_place",
    "test_volumes::test_a_volume_that_is_there_is_given_to_the_claim_on_its_node",
)
# A run with a real API server plays these on the embedded cluster too, to show that scenarios still work there.
ON_BOTH: Final = frozenset({"test_deleting_pods", "test_kubectl", "test_vendors"})


def modules() -> tuple[ModuleType, ...]:
    """The test modules of the room, by name."""
    return tuple(importlib.import_module(f"tests.integration.{path.stem}") for path in sorted(_ROOM.glob("test_*.py")))


def defined_in(module: ModuleType) -> Mapping[str, Test]:
    """The tests that *module* defines, by name."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: test for name, test in found if name.startswith("test_") and test.__module__ == module.__name__}


def is_scenario(test: Test) -> bool:
    """Whether *test* has its cluster opened by a fixture."""
    return not OPENERS.isdisjoint(inspect.signature(test).parameters)


def reason(module: str, test: str) -> str:
    """Why `e2e/test_scenarios` does not play a test, or ""."""
    name = module.rpartition(".")[2]
    if f"{name}::{test}" in OF_RIGHTS:
        return "e2e/test_rights plays it"
    return ONLY_HERE.get(name) or ONLY_HERE.get(f"{name}::{test}", "")


def again(module: str, name: str) -> str:
    """The name under which a test (or one case of it) is played on a real API server."""
    return f"{module.rpartition('.')[2]}__{name.removeprefix('test_')}"


def of_rights() -> tuple[Test, ...]:
    """The tests that `e2e/test_rights` plays."""
    named = (name.partition("::") for name in OF_RIGHTS)
    return tuple(getattr(importlib.import_module(f"tests.integration.{module}"), test) for module, _, test in named)


def replayed() -> dict[str, Test]:
    """The tests that are to be played on a real API server, by names that tell their modules."""
    return {
        again(module.__name__, name): test
        for module in modules()
        for name, test in defined_in(module).items()
        if is_scenario(test) and not reason(module.__name__, name)
    }
