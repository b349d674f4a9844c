"""The cases to survive, by their numbers, and which tests play each.

A test gets the marker `case(number=N)` from here (`tests/conftest.py`), so that `pytest -m "case(number=22)"` runs what
plays a case, and a unit test holds the table against the tests that there are. A case without a test has a reason.
"""

from collections.abc import Mapping
from typing import Final

_FAULTS: Final = "integration/test_controller_faults"
_POINTS: Final = "integration/test_fail_points"
_REPLICAS: Final = "integration/test_replicas"
_PROCESS: Final = "integration/test_controller_process"
_TRANSPORT: Final = "integration/test_kube_transport"
_WATCHES: Final = "integration/test_kube_watches"
_REFLECTOR: Final = "unit/kube/test_reflector"
_OUTCOMES: Final = "unit/controller/test_outcomes"
_PLACING: Final = "unit/controller/test_placing"
_CHANGE: Final = "unit/controller/test_cards_change"
_QUEUE: Final = "unit/controller/test_queue_cases"
_LEASE: Final = "unit/kube/test_lease"
_MUTATE: Final = "unit/core/admission/test_mutate"
_WEBHOOK: Final = "integration/test_webhook_process"
_PORTS: Final = "integration/test_ports"
_SERVING: Final = "integration/test_webhook_serving"
_WIRE: Final = "property/test_webhook_wire"
_CERTS: Final = "unit/certs/test_files"

TITLES: Final[Mapping[int, str]] = {
    # the API server and the way to it
    1: "the controller is killed after it reserved, before its Binding is sent",
    2: "the controller is killed after its Binding was written, before it knows",
    3: "the controller is killed during its first list, and between list and watch",
    4: "a Binding is answered 409: already assigned",
    5: "a Binding is answered 409: another uid, for the pod was deleted and made again",
    6: "a Binding's connection is cut after it was written",
    7: "a Binding's connection is cut before it was written",
    8: "a Binding times out and is written seconds later",
    9: "429 with Retry-After on Bindings, lists and the lease",
    10: "500 and 503, as JSON and as HTML, for half a minute",
    11: "422 on a Binding or a patch",
    12: "a connection that swallows everything",
    13: "the API server is away for minutes",
    14: "a watch that stands and says nothing",
    15: "a watch that ends every second",
    16: "a watch that is answered 200 and ends at once, for ever",
    17: "410 as an event, as a status and on a continue token",
    18: "410 again and again",
    19: "a watch answered 429 or 502 with text",
    20: "an event of 6 MB, one cut short, one that is no JSON",
    21: "events told twice and in another order",
    22: "a watch held back while pods come and go",
    23: "a token file that is replaced; 401 once",
    24: "another authority of the API server",
    25: "a right that is taken away",
    26: "a first list of 10,000 pods",
    # pods, nodes and cards that change under us
    27: "a pod is deleted between decision and Binding",
    28: "a pod with finalizers is deleted while it waits",
    29: "a bound pod is deleted with a long grace",
    30: "a pod is over and never deleted",
    31: "kubelet turns a pod away",
    32: "init containers, sidecars, resize in place",
    33: "a pod with our resources is bound by somebody else",
    34: "the assignment of a running pod is edited",
    35: "an assignment that cannot be read",
    36: "a node is deleted while a pod is bound to it",
    37: "a node comes back under its name with other cards",
    38: "a card becomes unhealthy",
    39: "a plugin comes back with other ids, another order, fewer cards, half the memory",
    40: "nodes cordoned, tainted, not ready, under pressure, full of pods",
    41: "a heartbeat stops, or a node's clock is an hour off",
    42: "a node's lock left behind, malformed, from the future",
    43: "pods race for the last shares",
    44: "10,000 gated pods",
    45: "priority, and a head of the queue that never fits",
    # who leads
    46: "the leader is killed",
    47: "the leader is asked to end",
    48: "the leader reaches nobody",
    49: "the leader is stopped for a minute and goes on",
    50: "the leader's loop is blocked for longer than its lease",
    51: "clocks jump",
    52: "the lease is deleted, or edited by hand",
    53: "two replicas of one identity",
    54: "the leader changes with a crowd queued",
    # hostile and malformed input
    55: "node annotations of any content",
    56: "quantities of any spelling",
    57: "amounts out of range, and contradictions of them",
    58: "ids and types that would break out of an encoding",
    59: "types that begin alike",
    60: "control characters and megabytes in logs and events",
    61: "an assignment that the pod's annotations have no room for",
    62: "assignments and privileges that a pod gives itself",
    # reviews and HTTP
    63: "bodies that are no review",
    64: "calls of another verb, path or type",
    65: "bodies over the limit",
    66: "slow clients",
    67: "our own answer sent again",
    68: "dry runs, subresources, other operations",
    69: "patches that do not apply",
    70: "deadlines",
    71: "a rolling restart under load",
    72: "the webhook is away",
    # certificates
    73: "pair and authority change under load",
    74: "files replaced one by one, half written, of another key",
    75: "a pair that ends",
    76: "old protocols, plain text",
    77: "clients without a certificate, or with another's",
    78: "a trust bundle that is emptied or replaced",
    79: "keys that others could read",
    # scale and posture
    80: "5,000 pods in 10 s",
    81: "a day in fast motion",
    82: "series by pod",
    83: "one pod refused 10,000 times",
    84: "the restricted standard",
    85: "rights that are not used",
    86: "one release to the next and back",
}

# "folder/file::test", without "test_" before the test's name.
PLAYED: Final[Mapping[int, tuple[str, ...]]] = {
    # the API server and the way to it
    1: (f"{_POINTS}::a_controller_that_dies_before_it_sends_its_binding_has_written_nothing",),
    2: (f"{_POINTS}::a_controller_that_dies_after_its_binding_was_written_is_followed_by_one_that_counts_it",),
    3: (f"{_POINTS}::a_controller_that_dies_during_its_first_list_or_before_its_watch_speaks_misses_nothing",),
    4: (
        f"{_PROCESS}::somebody_elses_binding_is_not_repeated",
        f"{_OUTCOMES}::a_pod_that_somebody_else_bound_first_is_counted_where_it_is",
    ),
    5: (f"{_FAULTS}::a_pod_deleted_and_made_again_under_its_name_is_another_pod",),
    6: (f"{_FAULTS}::a_binding_whose_answer_is_lost_is_settled_and_promised_once",),
    7: (f"{_FAULTS}::a_binding_whose_answer_is_lost_is_settled_and_promised_once",),
    8: (
        f"{_FAULTS}::a_share_is_given_to_nobody_while_a_binding_of_it_may_still_be_written",
        f"{_FAULTS}::a_binding_written_late_is_not_forgotten_when_the_next_is_refused",
    ),
    9: (
        f"{_FAULTS}::a_throttled_controller_leaves_the_api_server_alone_as_long_as_it_was_asked_to",
        f"{_TRANSPORT}::429_slows_the_whole_client_but_not_the_lease",
    ),
    10: (
        f"{_FAULTS}::a_binding_whose_answer_is_lost_is_settled_and_promised_once",
        f"{_FAULTS}::a_binding_that_is_answered_500_for_ever_is_told_and_keeps_no_card_from_others",
        f"{_REFLECTOR}::after_an_outage_the_list_comes_within_ten_seconds_of_its_end",
    ),
    11: (f"{_OUTCOMES}::a_binding_that_will_never_be_accepted_is_told_to_the_user_and_not_repeated_at_once",),
    12: (f"{_REPLICAS}::48_12_a_leader_that_reaches_nobody_stops_writing_and_ends_before_another_begins",),
    13: (f"{_POINTS}::a_controller_stays_while_the_api_server_is_away_and_goes_on_when_it_is_back",),
    14: (f"{_REPLICAS}::14_nothing_is_bound_to_a_node_whose_deletion_a_silent_watch_keeps_back",),
    15: (f"{_REFLECTOR}::a_watch_closed_every_second_is_opened_again_at_once_and_never_listed",),
    16: (f"{_REFLECTOR}::a_watch_that_never_works_is_asked_at_most_ten_times_in_thirty_seconds",),
    17: (
        f"{_REFLECTOR}::410_lists_again_and_the_vanished_are_gone",
        f"{_REFLECTOR}::410_on_a_continue_token_begins_the_list_anew",
    ),
    18: (f"{_REFLECTOR}::410_again_and_again_spaces_the_lists_out",),
    19: (f"{_WATCHES}::a_stream_that_fails_is_an_error_and_never_a_line",),
    20: (
        f"{_WATCHES}::an_event_of_six_megabytes_is_one_line",
        f"{_REFLECTOR}::a_line_that_cannot_be_read_is_counted_and_listed_over",
    ),
    21: (
        "property/test_lifecycle::nothing_is_sold_twice_and_nothing_forgotten_whatever_the_network_does",
        f"{_PLACING}::the_same_event_told_twice_is_nothing",
    ),
    22: (f"{_POINTS}::what_is_bound_while_the_watch_of_pods_is_held_back_counts_at_once",),
    23: (
        f"{_TRANSPORT}::after_one_401_the_token_is_read_again_and_the_call_repeated_once",
        f"{_TRANSPORT}::a_rotated_token_file_is_seen_within_a_minute",
    ),
    24: (f"{_TRANSPORT}::an_authority_replaced_in_its_file_is_trusted_without_a_restart",),
    25: (
        f"{_PROCESS}::a_missing_right_is_named_with_its_verb",
        f"{_REFLECTOR}::a_forbidden_watch_says_so_and_recovers_without_a_list",
    ),
    26: (f"{_WATCHES}::a_list_of_ten_thousand_pods_never_holds_the_loop_for_long",),
    # pods, nodes and cards that change under us
    27: (f"{_OUTCOMES}::a_pod_deleted_while_its_binding_is_in_flight_leaves_nothing",),
    28: (f"{_QUEUE}::a_thousand_pods_that_are_deleted_while_they_wait_leave_nothing_although_finalizers_keep_them",),
    29: (f"{_PLACING}::a_pod_that_is_being_deleted_holds_its_cards_until_it_is_gone",),
    30: (f"{_PLACING}::a_finished_pod_frees_its_cards_once_and_its_deletion_frees_nothing_more",),
    31: (
        f"{_CHANGE}::31_a_pod_that_was_turned_away_frees_its_share_once",
        "unit/controller/handing_over/test_node_cooldown::an_owners_pods_go_elsewhere_after_three_failures_in_a_row",
    ),
    32: (
        "unit/core/test_nodefit::a_pod_takes_the_larger_of_its_init_phase_and_its_containers_plus_overhead",
        "unit/core/test_nodefit::sidecars_run_beside_containers_and_later_init_containers",
        "unit/core/test_ledger::a_pod_that_is_resized_takes_what_it_asks_for_now",
    ),
    33: (
        "unit/controller/test_unassigned::a_pod_that_somebody_else_bound_without_an_assignment_closes_its_node_"
        "and_is_told",
    ),
    34: (
        "unit/controller/test_unassigned::who_rewrites_a_bound_pods_cards_moves_nothing_and_is_told_of",
        "unit/core/admission/test_update::a_forged_update_is_denied_for_people_and_admitted_for_machines",
        "e2e/test_policies::nobody_but_schedulers_and_plugins_changes_an_assignment",
    ),
    35: (
        "unit/controller/test_unreadable::a_bound_pod_that_cannot_be_read_closes_its_node_for_what_it_names_until_"
        "it_is_over",
        "unit/controller/test_unassigned::an_assignment_that_could_not_be_read_is_read_once_it_can_be",
    ),
    36: (f"{_PLACING}::a_pod_on_a_node_that_does_not_exist_is_reported",),
    37: (f"{_CHANGE}::37_other_cards_under_the_same_name_are_empty_and_the_pods_of_the_old_ones_are_kept",),
    38: (f"{_CHANGE}::38_an_unhealthy_card_takes_nothing_new_keeps_what_it_has_and_heals",),
    39: (
        f"{_CHANGE}::39_a_card_that_leaves_the_register_takes_its_share_along_and_has_it_again_when_it_is_back",
        f"{_CHANGE}::39_another_order_moves_nothing",
        f"{_CHANGE}::39_half_the_memory_leaves_a_card_overfull_and_takes_nothing_new",
    ),
    40: ("unit/core/test_nodefit::static_rules_admit_or_say_why_not",),
    41: (
        "unit/controller/test_heartbeats::an_index_is_taken_once_the_handshake_of_a_replaced_plugin_is_old",
        "unit/controller/test_heartbeats::other_changes_of_the_node_do_not_make_the_handshake_young",
    ),
    42: (
        "unit/controller/deciding/test_bind::42_a_lock_from_the_future_is_over_five_minutes_after_it_was_first_seen",
        "unit/controller/deciding/test_bind::42_how_long_a_lock_was_seen_is_by_our_clock_whatever_the_wall_clock_does",
        "integration/test_locks_and_rights::a_lock_of_which_the_answer_was_lost_is_known_as_ours_and_locks_nobody_out",
    ),
    43: ("integration/test_crowd::of_pods_that_race_for_cards_exactly_as_many_get_one_as_there_are",),
    44: (f"{_QUEUE}::ten_thousand_gated_pods_cost_no_decision_and_one_that_is_let_go_is_placed",),
    45: (f"{_QUEUE}::a_pod_of_high_priority_that_never_fits_holds_nobody_up_and_is_looked_at_again_in_time",),
    # who leads
    46: (f"{_REPLICAS}::46_a_killed_leader_is_followed_once_its_lease_has_run_out",),
    47: (f"{_REPLICAS}::47_a_leader_that_ends_is_followed_at_once",),
    48: (f"{_REPLICAS}::48_12_a_leader_that_reaches_nobody_stops_writing_and_ends_before_another_begins",),
    49: (f"{_REPLICAS}::49_a_leader_that_was_stopped_for_a_while_writes_nothing_when_it_goes_on",),
    50: (f"{_POINTS}::a_leader_whose_loop_was_blocked_until_its_lease_was_over_sends_nothing_when_it_goes_on",),
    51: (
        f"{_LEASE}::a_jump_of_the_wall_clock_changes_no_holder",
        f"{_LEASE}::a_wall_clock_that_is_ahead_ends_what_is_believed_until_the_next_renewal",
    ),
    52: (
        f"{_REPLICAS}::52_a_lease_that_is_deleted_or_edited_by_hand_is_mended_and_changes_no_leader",
        f"{_REPLICAS}::52_a_lease_that_a_person_gives_to_another_ends_its_holder_and_is_waited_out",
    ),
    53: (f"{_LEASE}::a_holder_of_our_own_name_that_we_did_not_write_is_another",),
    54: (
        f"{_REPLICAS}::54_two_controllers_and_a_crowd_overcommit_no_card_although_the_leader_is_killed_in_the_middle",
        "integration/test_chaos::after_some_faults_nothing_is_overcommitted_forgotten_or_lost",
    ),
    # hostile and malformed input
    55: (
        "property/test_decoders::any_bytes_are_accepted_or_refused_as_promised",
        "property/test_hostile_cpu::any_register_is_read_within_5_ms_however_it_is_repeated",
        "property/test_hostile_cpu::a_node_is_read_within_5_ms",
    ),
    56: (
        "unit/core/test_units::an_amount_is_read_as_kubernetes_means_it_rounded_up",
        "unit/core/test_units::what_is_no_whole_count_is_refused_with_the_field_and_the_text_and_costs_nothing",
    ),
    57: (
        "unit/core/test_units::a_count_above_its_maximum_is_refused",
        f"{_MUTATE}::what_cannot_be_mended_is_denied_with_place_value_and_remedy",
    ),
    58: (
        "unit/core/dialects/test_vgpu_hostile::a_card_whose_id_no_assignment_can_carry_takes_nothing",
        "property/test_share_dialects::assignments_go_round",
    ),
    59: ("unit/core/test_selection::types_are_matched_by_whole_words",),
    60: (
        "unit/core/dialects/test_vgpu_hostile::what_is_said_of_a_card_is_short_and_printable_whatever_its_register_says",
        "unit/core/wire/test_reviews::warnings_are_one_short_line_each",
    ),
    61: (f"{_OUTCOMES}::a_pod_whose_annotations_leave_no_room_for_its_assignment_is_told_so_and_not_bound",),
    62: (
        f"{_MUTATE}::an_assignment_is_stripped_from_every_new_pod_and_named",
        "unit/core/admission/test_reach::the_nodes_processes_are_not_shown",
    ),
    # reviews and HTTP
    63: (
        f"{_WIRE}::what_is_no_review_is_refused_with_a_line",
        "unit/core/wire/test_reviews::what_is_no_review_is_refused",
    ),
    64: (f"{_WEBHOOK}::each_call_has_its_status",),
    65: (f"{_WEBHOOK}::the_body_is_capped_while_it_is_read",),
    66: (
        f"{_SERVING}::slow_clients_harm_nobody_and_are_bounded",
        f"{_WEBHOOK}::half_a_body_is_not_waited_for",
        f"{_PORTS}::a_head_that_does_not_come_to_its_end_is_refused_in_time",
    ),
    67: (
        "property/test_admission::an_admitted_pod_is_answered_once",
        "property/test_admission::the_final_state_of_an_admitted_pod_is_accepted",
    ),
    68: (
        "unit/core/admission/test_subresources::cpu_and_memory_are_resized_and_cards_are_not",
        f"{_MUTATE}::what_no_rule_names_is_admitted",
    ),
    69: (f"{_WIRE}::every_review_is_answered_as_the_api_server_takes_it",),
    70: ("unit/webhook/test_calls::the_deadline_is_four_fifths_of_the_callers",),
    71: (
        "integration/test_webhook_rollout::no_call_is_lost_in_a_rolling_restart_and_a_change_of_authority",
        "e2e/test_rollout::no_create_is_lost_in_a_rolling_restart_and_a_change_of_authority",
        "e2e/test_rollout::a_create_whose_call_is_on_its_way_to_a_webhook_that_ends_is_made_by_another",
        f"{_PORTS}::a_stop_tells_whose_call_may_be_on_its_way_to_ask_again",
    ),
    72: (
        "integration/test_webhook_away::pods_without_cards_are_created_and_those_with_cards_are_not",
        "e2e/test_deploy::while_the_webhook_is_away_only_pods_about_cards_are_refused",
    ),
    # certificates
    73: ("integration/test_webhook_rollout::no_call_is_lost_in_a_rolling_restart_and_a_change_of_authority",),
    74: (
        f"{_WEBHOOK}::a_changed_pair_is_served_and_a_broken_one_is_not",
        "unit/certs/test_serving::a_pair_that_will_not_do_is_told_why",
    ),
    75: (
        "unit/certs/test_pair::a_pair_is_due_at_two_thirds_of_its_life",
        f"{_SERVING}::an_ended_certificate_is_not_served",
    ),
    76: (f"{_WEBHOOK}::old_protocols_and_plain_text_are_refused",),
    77: (
        f"{_SERVING}::only_clients_of_the_named_authority_may_call",
        f"{_SERVING}::of_an_authority_only_clients_of_the_given_names_may_call",
    ),
    78: ("integration/test_certs_keeper::a_deleted_secret_and_a_foreign_bundle_are_right_again_within_seconds",),
    79: (
        f"{_CERTS}::nothing_there_becomes_a_good_pair_for_its_owner_only",
        "integration/test_certs_command::no_key_is_printed",
    ),
    # scale and posture
    82: ("unit/controller/test_cards::series_of_pods_are_written_where_they_are_asked_for",),
    83: (
        "unit/controller/reporting/test_events::the_same_about_one_object_is_one_event_that_is_counted",
        "unit/controller/reporting/test_events::a_flood_is_written_slowly_and_warnings_outlast_news",
    ),
    84: (
        "unit/manifests/test_workloads::a_pod_runs_restricted_on_a_read_only_root",
        "e2e/test_deploy::the_pods_of_all_workloads_are_admitted_under_the_restricted_standard",
    ),
    85: (
        "unit/manifests/test_rights::an_account_has_the_rights_that_are_used_and_no_others",
        "e2e/test_rights::every_right_is_used_and_nothing_beyond_them",
    ),
    86: ("integration/test_upgrades::each_version_takes_over_what_the_other_placed",),
}

WITHOUT: Final[Mapping[int, str]] = {
    80: "a rate beside other tests says nothing: `scripts/bench place --real` and `scripts/bench admit` measure it",
    81: "`scripts/bench soak` measures what memory grows over 200,000 lives; `scripts/chaos` plays the rest",
}
