"""Expensive tests that `make test` runs in turns: each day a third of them, or of their cases.

`make torture` runs the others, and `HOLDFAST_TEST_DAY=N make test` the selection of another day.
"""

from __future__ import annotations

from typing import Final

DAYS: Final = 3
ROTATED: Final = {
    "tests/adapters/langgraph/test_delta_prune.py": (
        "test_a_dry_run_reports_what_folding_frees",
        "test_the_command_folds_if_asked_to_and_keeps_one_checkpoint",
        "test_the_command_keeps_what_delta_channels_need_and_reports_it",
    ),
    "tests/adapters/langgraph/test_drop_in.py": ("test_langgraphs_variable_for_strictness_means_the_same_here",),
    "tests/adapters/langgraph/test_graphs.py": ("test_every_durability",),
    "tests/adapters/langgraph/test_growth.py": ("test_bytes_on_disk_are_at_most_three_times_the_messages",),
    "tests/adapters/langgraph/test_migrate.py": (
        "test_everything_is_the_same_as_in_the_source",
        "test_types_that_are_not_allowed_are_moved_and_nothing_is_imported",
        "test_what_the_source_got_since_is_moved_too",
    ),
    "tests/adapters/langgraph/test_migrate_files.py": (
        "test_a_migration_killed_at_every_commit_comes_to_the_same_end",
        "test_a_source_that_is_being_written_to",
    ),
    "tests/adapters/langgraph/test_msgpack_split.py": ("test_any_value_is_joined_again",),
    "tests/adapters/langgraph/test_save_order.py": (
        "test_a_replay_of_nested_and_repeated_subgraphs_is_as_with_langgraphs_own_saver",
        "test_an_interrupted_subgraph_continues_after_a_cleanup",
    ),
    "tests/adapters/langgraph/test_thread_claims.py": ("test_of_two_processes_that_resume_one_thread_one_pays",),
    "tests/cli/test_actions.py": ("test_ctrl_c_gives_the_run_back_and_says_how_to_go_on",),
    "tests/cli/test_export_import.py": (
        "test_a_worker_ends_when_it_is_told_to",
        "test_archives_go_through_pipes_and_into_directories",
        "test_bash_itself_completes",
        "test_the_demo_is_shown",
    ),
    "tests/cli/test_follow.py": (
        "test_a_rollback_to_a_stage_goes_to_before_the_whole_of_it",
        "test_ctrl_c_at_any_moment_is_no_traceback",
        "test_ctrl_c_while_a_run_is_followed_is_no_traceback",
        "test_output_that_cannot_be_written_is_an_error_and_no_traceback",
        "test_what_a_run_does_is_told_while_it_does_it",
        "test_whoever_has_seen_enough_ends_the_command_quietly",
    ),
    "tests/cli/test_json_actions.py": (
        "test_what_acts_on_a_run",
        "test_what_is_about_declared_workflows",
        "test_what_keeps_and_moves_runs",
    ),
    "tests/cli/test_main.py": ("test_it_starts_in_less_than_three_times_what_python_takes",),
    "tests/cli/test_notifications.py": ("test_what_was_not_delivered_is_listed_with_the_reason",),
    "tests/cli/test_output.py": ("test_a_reader_that_has_seen_enough_is_no_error",),
    "tests/cli/test_prune.py": ("test_killed_at_any_moment_it_leaves_a_sound_store_and_can_be_begun_again",),
    "tests/cli/test_read_commands.py": (
        "test_effects_verify_and_doctor",
        "test_list_filters_and_pages",
    ),
    "tests/cli/test_removal.py": ("test_prune_keeps_a_run_whose_messages_were_not_delivered",),
    "tests/cli/test_rollback.py": ("test_a_process_killed_just_after_it_began_a_rollback_leaves_it_to_a_worker",),
    "tests/cli/test_run.py": ("test_a_changed_file_is_refused_with_a_diff_until_told_to_migrate",),
    "tests/cli/test_threads.py": (
        "test_an_odd_value_of_one_thread_is_shown_and_stops_no_other",
        "test_reading_threads_needs_no_langgraph",
    ),
    "tests/cli/test_web.py": (
        "test_a_proxy_names_the_users",
        "test_a_proxy_without_a_users_file_gives_no_role_of_the_tokens_of_this_user",
        "test_a_token_that_cannot_be_made_is_wrong_usage",
        "test_an_address_that_other_machines_reach_needs_users",
        "test_another_loopback_address_is_served_under_its_own_name",
        "test_json_is_the_address_and_nothing_else",
        "test_options_that_do_not_fit_are_wrong_usage",
        "test_tokens_of_this_user_are_bearer_tokens_of_the_page",
        "test_users_of_a_file_reach_a_page_of_all_addresses",
        "test_without_the_extra_it_reports_what_to_install",
    ),
    "tests/demo/test_demo.py": (
        "test_who_sits_at_a_terminal_decides",
        "test_without_a_terminal_the_demo_prints_the_command_of_the_page_and_ends",
    ),
    "tests/engine/test_code_changes.py": ("test_resuming_reads_as_much_after_many_turns_as_after_few",),
    "tests/engine/test_crashes.py": (
        "test_a_crash_around_any_commit_changes_nothing_in_the_end",
        "test_a_crash_around_any_commit_changes_nothing_on_any_store",
    ),
    "tests/engine/test_edited_state.py": (
        "test_a_fork_goes_on_with_the_state_it_is_given",
        "test_a_fork_goes_on_with_values_set_in_its_state",
        "test_a_rollback_behind_an_edit_keeps_it_and_before_it_does_not",
    ),
    "tests/engine/test_fork.py": ("test_a_fork_goes_its_own_way_and_leaves_its_source_alone",),
    "tests/engine/test_large_values.py": (
        "test_a_result_of_almost_256_mib_is_written_and_read_within_four_times_its_size",
        "test_results_answers_and_events_above_sixteen_mib_are_kept_on_every_store",
    ),
    "tests/engine/test_open_rollbacks.py": ("test_a_rollback_is_planned_again_if_the_run_is_pruned_meanwhile",),
    "tests/engine/test_rollback.py": ("test_a_rollback_goes_back_in_a_loop_with_the_state_of_that_turn",),
    "tests/engine/test_rollback_after_prune.py": ("test_events_received_since_come_back_in_their_order",),
    "tests/engine/test_rollback_with_children.py": (
        "test_a_child_that_waits_is_stopped_and_what_it_did_is_undone",
        "test_a_fork_takes_over_what_the_children_of_its_source_did",
        "test_a_rollback_over_children_is_taken_up_after_a_crash_at_any_commit",
        "test_what_finished_children_did_is_planned_and_undone_in_reverse_and_done_again_once",
    ),
    "tests/engine/test_steps.py": ("test_a_divergence_names_the_argument_that_changed_first",),
    "tests/engine/test_store_failures.py": ("test_trouble_at_any_call_stops_the_run_and_a_resume_completes_it",),
    "tests/engine/test_typed_input.py": ("test_input_and_result_are_what_is_annotated_in_every_process",),
    "tests/faults/test_slices.py": (
        "test_a_broken_store_does_not_get_past_its_harness",
        "test_a_full_disk_refuses_saves_and_leaves_room_for_prune",
        "test_a_process_killed_at_any_command_of_a_workflow_or_rollback_is_followed_by_another_that_ends_it",
        "test_a_process_stopped_past_its_lease_writes_nothing_and_begins_no_effect_any_more",
        "test_a_sync_of_a_directory_that_failed_is_never_built_upon",
        "test_a_sync_that_failed_is_never_built_upon",
        "test_every_failing_call_of_a_directory_is_a_clear_error_and_a_full_disk_leaves_room_for_prune",
        "test_every_failing_call_of_the_disk_is_a_clear_error_and_changes_nothing",
        "test_four_workers_end_each_run_once_although_they_are_killed",
        "test_no_two_owners_write_although_workers_are_stopped_and_killed",
        "test_nothing_is_lost_or_done_twice_while_postgresql_crashes_and_connections_are_cut",
        "test_of_eight_processes_that_answer_at_once_one_wins_and_the_others_are_told_who",
        "test_prune_and_fork_beside_writers_take_nothing_a_checkpoint_needs",
        "test_what_was_acknowledged_in_the_files_of_other_systems_survives_a_power_cut",
        "test_what_was_acknowledged_survives_a_power_cut_at_any_instant",
        "test_what_was_acknowledged_survives_a_power_cut_of_a_directory_at_any_file_operation",
    ),
    "tests/formats/test_kills.py": (
        "test_a_process_killed_before_any_step_of_a_change_leaves_it_done_or_not_done",
        "test_every_failing_call_of_the_disk_is_an_error_of_ours_and_leaves_it_done_or_not_done",
    ),
    "tests/formats/test_seed_defects_in_formats.py": ("test_claim_race",),
    "tests/forms/test_form_properties.py": ("test_any_json_schema_is_refused_or_makes_a_form_that_never_raises",),
    "tests/forms/test_forms.py": ("test_schemas_that_run_in_circles_end_in_a_problem",),
    "tests/graphs/test_killed_processes.py": ("test_a_flow_that_is_killed_again_and_again_is_done_once",),
    "tests/inspect/test_worked_time.py": ("test_in_random_journals_no_gap_overlaps_another_or_any_work",),
    "tests/notifications/test_killed_processes.py": ("test_each_event_arrives_wherever_the_process_is_killed",),
    "tests/operations/copies/test_copies.py": (
        "test_a_copy_goes_on_where_the_run_stood_and_leaves_it_alone",
        "test_a_copy_that_was_killed_half_way_can_be_repeated",
        "test_a_run_moves_to_another_store_and_goes_on_there",
    ),
    "tests/runtime/test_postgres_workers.py": (
        "test_a_worker_survives_the_sudden_restart_of_the_server_and_no_run_is_lost",
    ),
    "tests/runtime/test_takeover.py": (
        "test_a_stopped_process_is_not_robbed_before_its_lease_ends",
        "test_the_run_of_a_killed_worker_is_taken_over_by_another_long_before_its_lease_ends",
    ),
    "tests/runtime/test_worker_announcements.py": ("test_a_killed_worker_is_not_living",),
    "tests/runtime/test_worker_drain.py": (
        "test_a_parent_and_its_child_that_outlive_the_drain_are_both_brought_to_their_end",
        "test_a_step_longer_than_the_drain_leaves_its_run_to_others_at_once_and_writes_nothing_any_more",
    ),
    "tests/state/test_damaged_state.py": (
        "test_a_bomb_of_empty_pieces_or_of_depth_is_not_followed",
        "test_every_flipped_bit_and_every_cut_of_a_chunk_is_found",
    ),
    "tests/state/test_rope.py": (
        "test_an_edit_in_the_middle_costs_a_few_pages",
        "test_edited_states_come_back_exactly_whatever_was_saved_before",
    ),
    "tests/store/directory/test_directory_stateful.py": ("TestDirectoryMachine::runTest",),
    "tests/store/directory/test_processes.py": (
        "test_eight_processes_take_every_ready_run_once",
        "test_eight_processes_write_and_nothing_is_lost_or_done_twice",
        "test_processes_that_make_the_directory_at_once_do_not_get_in_each_others_way",
        "test_what_a_killed_process_left_is_settled_by_one_that_was_there_all_along",
    ),
    "tests/store/postgres/test_owner_sessions.py": (
        "test_a_killed_process_is_taken_over_before_its_lease_and_a_stopped_or_living_one_is_not",
        "test_after_a_restart_no_owner_is_declared_dead_that_had_no_lock_since",
    ),
    "tests/store/postgres/test_postgres_faults.py": (
        "test_a_half_open_connection_is_an_error_in_time",
        "test_a_synchronous_replica_that_takes_over_has_everything_that_was_acknowledged",
        "test_every_change_whose_commit_was_cut_happens_exactly_once",
    ),
    "tests/store/postgres/test_postgres_stateful.py": (
        "TestNewestMachine::runTest",
        "TestOldestMachine::runTest",
    ),
    "tests/store/postgres/test_schema.py": ("test_many_processes_create_a_schema_at_once",),
    "tests/store/sqlite/test_sqlite_faults.py": ("test_a_fork_waits_until_nobody_is_inside_sqlite",),
    "tests/store/test_owner_files.py": ("test_a_script_that_ends_without_closing_leaves_no_directory_of_owners",),
    "tests/store/test_stateful.py": (
        "TestMemoryMachine::runTest",
        "TestSqliteMachine::runTest",
    ),
    "tests/test_seed_defects.py": (
        "test_claim_race",
        "test_lost_update_and_temp_sharing",
        "test_torn_write",
    ),
    "tests/testing/test_broken_stores.py": (
        "test_a_broken_store_does_not_get_past_the_contract",
        "test_a_sound_store_passes",
    ),
    "tests/typing/test_types.py": ("test_a_type_checker_knows_what_comes_back_and_refuses_what_does_not_fit",),
    "tests/web/browser/test_acting.py": (
        "test_a_rollback_shows_its_plan_before_it_happens",
        "test_a_workflow_is_started_from_a_form_of_its_signature",
        "test_many_runs_are_cancelled_at_once_after_a_page_that_lists_them",
        "test_runs_are_filtered_and_paged_by_links_and_forms",
    ),
    "tests/web/browser/test_answering.py": (
        "test_a_form_with_every_kind_of_field_is_answered",
        "test_two_approvals_need_two_people_and_not_the_one_that_is_excluded",
    ),
    "tests/web/browser/test_crawl.py": (
        "test_every_form_that_a_viewer_could_send_is_refused",
        "test_every_page_fits_the_window_is_accessible_and_reports_nothing",
    ),
    "tests/web/browser/test_hostile_content.py": (
        "test_hostile_text_executes_nothing_asks_no_other_server_and_fits_the_window",
        "test_no_stored_text_becomes_an_element_or_an_attribute",
    ),
    "tests/web/browser/test_large_stores.py": ("test_pages_of_a_large_store_are_bounded",),
    "tests/web/browser/test_login.py": (
        "test_a_removed_user_is_out_at_the_next_request",
        "test_the_login_leads_to_the_page_that_was_wanted_and_logout_ends_the_session",
        "test_the_login_page_is_accessible_at_both_widths_and_works_without_javascript",
        "test_the_printed_address_logs_in_once",
    ),
    "tests/web/test_api_document.py": ("test_the_examples_of_the_api_do_what_the_document_says",),
    "tests/web/test_form_values.py": (
        "test_a_shown_answer_is_submitted_as_it_was",
        "test_any_schema_is_shown_and_any_accepted_answer_submitted",
    ),
    "tests/web/test_http_server.py": (
        "test_a_client_that_does_not_read_its_response_is_disconnected",
        "test_a_client_that_sends_byte_by_byte_does_not_extend_its_time",
        "test_a_restart_keeps_sessions_and_their_ends",
        "test_a_signal_ends_the_server_also_with_open_streams_and_half_sent_requests",
        "test_clients_that_are_too_slow_are_disconnected_and_others_are_served",
        "test_https_is_served_with_cookies_that_are_bound_to_the_host",
        "test_one_address_is_printed_and_another_when_it_was_used",
        "test_websockets_are_not_spoken",
    ),
    "tests/web/test_markdown.py": (
        "test_hostile_text_takes_steps_in_proportion_to_its_length",
        "test_ten_million_characters_are_rendered",
    ),
    "tests/web/test_killed_answers.py": (
        "test_a_server_killed_at_an_approval_has_recorded_it_once_or_not_at_all",
        "test_of_two_servers_that_record_approvals_one_is_killed_and_none_counts_twice",
    ),
    "tests/web/test_mask.py": ("test_a_masked_text_occurs_on_no_page_of_its_run",),
    "tests/web/test_openapi.py": ("test_no_request_fails_on_the_server_and_every_response_is_as_documented",),
    "tests/web/test_restart.py": (
        "test_a_logout_survives_a_killed_server",
        "test_a_session_survives_a_killed_server",
        "test_no_confirmed_answer_is_lost_when_the_server_is_killed_between_answers",
    ),
    "tests/web/test_route_rules.py": ("test_every_route_is_open_to_its_role_and_to_no_lower_one",),
    "tests/web/test_run.py": ("test_links_of_a_run_lead_to_pages",),
}
"""The tests, by their file."""
