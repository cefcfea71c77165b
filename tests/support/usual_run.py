"""The tests that a usual run executes from the suites that need a JVM, grouped by verb and feature.

The other suites run completely, except for cases that are excluded by the pytest marks `long` and `sampled`.

An entry is a module, a test, or one case of a test. The pytest marks `long` and `sampled` also apply within a listed
module or test; a case that is listed by its own id always runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SPARK, CONNECT, S3, INTEROP = "tests/spark", "tests/spark_connect", "tests/spark_s3", "tests/interop"
SUITES = (SPARK, CONNECT, S3, INTEROP)
_PARITY = f"{INTEROP}/test_interop_parity.py::test_both_engines_answer_as_the_page_says"
_CENTRAL = tuple(
    f"{SPARK}/test_central.py::TestCentral::test_{name}"
    for name in (
        "write_and_read_back_every_type",
        "modes_and_what_the_log_says",
        "any_layout",
        "a_failed_job_leaves_no_commit_and_no_file",
        "partition_pruning_leaves_other_files_unread",
        "a_transaction_that_is_written_already_is_a_no_op",
    )
)

USUAL_RUN: dict[str, Sequence[str]] = {
    "append, overwrite, ignore, error; types, partitions, any layout": _CENTRAL,
    "the same and more over Spark Connect": (f"{CONNECT}/test_connect.py",),
    "append in turn with delta-spark": (
        f"{INTEROP}/test_interop_alternating.py::test_what_cannot_be_rebased_is_refused_and_leaves_no_trace[append]",
        f"{INTEROP}/test_interop_alternating.py::test_application_transactions_are_seen_by_the_other_side",
        f"{INTEROP}/test_interop_spark_writer.py::test_the_verbs_of_both_writers",
    ),
    "overwrite of partitions, replaceWhere": (
        f"{SPARK}/test_replace_where.py::test_rows_are_replaced_by_any_column[properties1-True]",
        f"{SPARK}/test_replace_where.py::test_a_row_outside_is_refused",
        f"{SPARK}/test_replace_where.py::test_partitions_are_replaced_without_reading_them",
        f"{SPARK}/test_writer.py::test_partitions_are_replaced",
        f"{_PARITY}[replaceWhere on a column of data, with the change data feed]",
    ),
    "write: conflicts, lost answers, durability": (
        f"{SPARK}/test_writer.py::test_concurrent_commits_are_judged_at_the_end",
        f"{SPARK}/test_writer.py::test_when_the_outcome_is_unknown_no_file_is_removed",
        f"{SPARK}/test_writer.py::test_a_lost_answer_is_found_to_be_our_commit",
        f"{SPARK}/test_writer.py::test_data_files_are_durable_before_the_commit_names_them",
    ),
    "delete, update": (
        f"{SPARK}/test_row_changes.py::test_the_same_rows_changes_ids_and_metrics_as_by_deltalog"
        "[vectors, partitioned, changes, ids, by name]",
        f"{SPARK}/test_row_changes.py::test_many_rows_of_a_file_are_found_by_bitmaps",
        f"{SPARK}/test_row_changes.py::test_a_concurrent_change_of_the_same_rows_is_a_conflict",
        f"{SPARK}/test_row_changes.py::test_rows_that_are_lost_on_the_way_are_noticed",
        f"{_PARITY}[UPDATE and DELETE with deletion vectors]",
        f"{_PARITY}[UPDATE with a change data feed]",
    ),
    "merge": (
        f"{SPARK}/test_row_merges.py::test_the_same_rows_changes_and_metrics_as_by_deltalog"
        "[vectors, partitioned, changes, ids, by name]",
        f"{SPARK}/test_row_merges.py::test_several_matches_of_one_row_are_refused",
        f"{SPARK}/test_row_merges.py::test_a_source_that_changes_in_between_is_noticed",
        f"{SPARK}/test_rewritten_rows.py::test_matched_rows_that_no_clause_changes_are_not_inserted[true]",
        f"{INTEROP}/test_interop_merge.py::test_both_engines_refuse_rows_that_several_match",
        f"{_PARITY}[MERGE with all kinds of clauses]",
    ),
    "filters after load": (
        f"{SPARK}/test_loaded_filters.py::test_sql_text[deferred]",
        f"{SPARK}/test_loaded_filters.py::test_columns[planned-of the frame]",
        f"{SPARK}/test_loaded_filters.py::test_every_layout[planned-vectors]",
    ),
    "programs for delta-spark as they are": (
        f"{SPARK}/test_install.py::test_readers_and_writers",
        f"{SPARK}/test_install.py::test_a_table_from_its_creation_to_its_end",
        f"{SPARK}/test_install.py::test_tables_and_exceptions",
        f"{SPARK}/test_install.py::test_what_there_was_is_back_after_uninstall",
        f"{CONNECT}/test_install.py",
    ),
    "SQL: rows": (
        f"{SPARK}/test_sql_rows.py::test_rows_are_deleted",
        f"{SPARK}/test_sql_rows.py::test_rows_are_updated",
        f"{SPARK}/test_sql_rows.py::test_all_clauses_of_a_merge",
        f"{SPARK}/test_sql_tables.py::test_rows_are_inserted",
        f"{SPARK}/test_sql_about.py::test_truncate",
    ),
    "SQL: tables": (
        f"{SPARK}/test_sql_tables.py::test_a_table_is_created",
        f"{SPARK}/test_sql_tables.py::test_a_table_is_created_from_a_query",
        f"{SPARK}/test_sql_tables.py::test_tables_with_names",
        f"{SPARK}/test_sql_alter.py::test_columns",
        f"{SPARK}/test_sql_alter.py::test_properties_constraints_and_features",
        f"{SPARK}/test_sql_about.py::test_describe",
        f"{SPARK}/test_sql_about.py::test_drop_forgets_the_name_and_keeps_the_files",
    ),
    "SQL: queries": (
        f"{SPARK}/test_sql_names.py::test_paths_names_and_sparks_own_tables_together",
        f"{SPARK}/test_sql_pruning.py::test_answers_from_the_log",
        f"{SPARK}/test_sql_pruning.py::test_files_that_are_left_out",
        f"{SPARK}/test_where.py::test_files_are_left_out_in_every_layout",
        f"{SPARK}/test_where.py::test_deleted_rows_are_not_counted",
    ),
    "stream source": (
        f"{SPARK}/test_stream_source.py::test_rows_there_are_first_and_then_those_of_commits_over_restarts",
        f"{SPARK}/test_stream_source.py::test_wrong_options_are_refused",
    ),
    "stream sink": (
        f"{SPARK}/test_stream_sink.py::test_each_batch_is_a_commit_with_the_id_of_the_query",
        f"{SPARK}/test_stream_sink.py::test_a_lost_acknowledgement_writes_nothing_twice",
        f"{SPARK}/test_stream_sink.py::test_a_batch_that_fails_is_written_once[after the commit]",
    ),
    "optimize": (
        f"{SPARK}/test_optimize.py",
        f"{INTEROP}/test_interop_optimize.py::test_the_history_is_that_of_delta_spark",
    ),
    "vacuum": (
        f"{SPARK}/test_vacuum.py::test_tasks_delete_what_the_driver_would",
        f"{SPARK}/test_sql_alter.py::test_files_are_vacuumed",
        f"{INTEROP}/test_interop_vacuum.py::test_both_would_delete_the_same_files[spark_deleted_by_vectors]",
    ),
    "restore": (
        f"{SPARK}/test_delta_table.py::test_versions_are_restored",
        f"{SPARK}/test_sql_alter.py::test_versions_are_restored",
    ),
    "clone, convert, manifests": (
        f"{SPARK}/test_copies.py",
        f"{_PARITY}[a table converted from Parquet]",
    ),
    "create, replace": (
        f"{SPARK}/test_delta_table.py::test_a_table_is_created_by_a_builder",
        f"{SPARK}/test_delta_table.py::test_a_table_with_a_name",
        f"{SPARK}/test_names.py::test_a_table_is_replaced_and_keeps_its_history[static]",
        f"{SPARK}/test_unity.py::test_by_name",
        f"{SPARK}/test_writer.py::test_overwrite_schema_replaces_schema_and_partitioning",
    ),
    "clustering": (
        f"{SPARK}/test_delta_table.py::test_clustering_columns",
        f"{_PARITY}[a clustered table: append]",
    ),
    "time travel by version": (
        f"{INTEROP}/test_interop_same_answers.py::test_rows_of_every_version",
        f"{SPARK}/test_where.py::test_a_version_of_the_past",
    ),
    "time travel by timestamp": (
        f"{INTEROP}/test_interop_same_answers.py::test_history_and_time_travel",
        f"{INTEROP}/test_interop_same_answers.py::test_spark_read_with_timestamp_as_of",
    ),
    "in-commit timestamps and their enablement": (
        f"{INTEROP}/test_interop_alternating.py::test_appends_in_turn[enabled-half-way-by-deltalog]",
        f"{INTEROP}/test_interop_alternating.py::test_the_enablement_pair_follows_a_rebased_enabling_commit",
        f"{INTEROP}/test_interop_same_answers.py::test_in_commit_timestamps_in_the_log",
        f"{INTEROP}/test_interop_same_answers.py::test_the_enablement_pair",
        f"{INTEROP}/test_interop_engine_defects.py::test_a_stale_pair_left_by_delta_spark_is_ignored_and_then_replaced",
        f"{_PARITY}[time travel with in-commit timestamps that were enabled late]",
    ),
    "change feed": (
        f"{SPARK}/test_table_features.py::test_changes_by_version_and_by_time",
        f"{SPARK}/test_table_features.py::test_changes_by_deletion_vectors",
    ),
    "schema evolution": (
        f"{SPARK}/test_writer.py::test_merge_schema_adds_columns_also_inside_structs",
        f"{SPARK}/test_merge_schema.py::test_types_are_widened_where_the_table_allows_it",
        f"{SPARK}/test_row_merges.py::test_columns_are_added_by_schema_evolution",
        f"{SPARK}/test_nested_values.py::test_merge_adds_nested_fields_and_rewrites_old_rows[vectors]",
        f"{SPARK}/test_nested_values.py::test_update_all_keeps_the_fields_that_the_source_lacks[feed]",
    ),
    "constraints, NOT NULL, lengths": (
        f"{SPARK}/test_rules.py",
        f"{SPARK}/test_writer.py::test_not_null_is_kept_at_every_depth",
        f"{SPARK}/test_writer.py::test_char_and_varchar_keep_their_length",
        f"{INTEROP}/test_interop_constraints.py::test_constraints_of_delta_spark",
    ),
    "generated, default and identity columns": (
        f"{SPARK}/test_data_values.py::test_generated_and_default_partition_values",
        f"{INTEROP}/test_interop_identity.py::test_values_go_on_from_engine_to_engine[deltalog]",
    ),
    "column mapping": (
        f"{SPARK}/test_table_features.py::test_columns_are_read_under_their_physical_names[a b.parquet]",
        f"{SPARK}/test_table_features.py::test_mapped_tables_are_written_under_physical_names_with_ids",
        f"{SPARK}/test_table_features.py::test_columns_are_found_by_id_whatever_their_names",
        f"{_PARITY}[column mapping: renamed and dropped columns]",
    ),
    "deletion vectors": (
        f"{SPARK}/test_table_features.py::test_deletion_vectors_of_every_kind_in_every_layout"
        "[any [{0}]/f{1}.parquet]",
        f"{SPARK}/test_table_features.py::test_a_deletion_vector_that_is_gone_or_damaged_is_an_error",
        f"{INTEROP}/test_interop_rewrites.py::test_vectors_are_those_of_delta_spark_byte_for_byte",
    ),
    "row tracking": (f"{INTEROP}/test_interop_rewrites.py::test_rows_that_are_moved_keep_their_ids",),
    "checkpoints, checksums, log compaction": (
        f"{INTEROP}/test_interop_checkpoints.py::test_a_log_that_begins_at_a_checkpoint[deltalog-ict]",
        f"{INTEROP}/test_interop_checkpoints.py::test_every_crc_that_deltalog_writes_is_valid_for_delta_spark"
        "[plain-ict]",
        f"{INTEROP}/test_interop_checkpoints.py::test_a_v2_checkpoint_is_read_by_delta_spark_and_where_it_can_by_deltalake"
        "[parquet with sidecars-plain]",
        f"{INTEROP}/test_interop_checkpoints.py::test_delta_spark_reads_a_compacted_log_as_the_commits",
        f"{INTEROP}/test_interop_checkpoints.py::test_the_check_of_the_crc_can_fail",
        f"{INTEROP}/test_interop_checkpoints.py::test_the_crc_chain_goes_on_above_a_checkpoint[deltalog]",
    ),
    "types, variants, statistics": (
        f"{SPARK}/test_variants.py::test_variants_are_written",
        f"{INTEROP}/test_interop_variants.py::test_json_has_the_bytes_and_the_text_of_spark",
        f"{INTEROP}/test_interop_variants.py::test_values_of_every_type[shredded]",
        f"{INTEROP}/test_interop_variants.py::test_statistics_are_those_of_delta_spark[shredded]",
        f"{INTEROP}/test_interop_types.py::test_columns_of_every_type",
        f"{INTEROP}/test_interop_types.py::test_partitions_of_every_type",
        f"{INTEROP}/test_interop_same_answers.py::test_protocol_metadata_and_files",
        f"{INTEROP}/test_interop_statistics.py::test_statistics_are_those_of_delta_spark",
    ),
    "doctor": (f"{INTEROP}/test_interop_doctor.py::test_disabling_leaves_the_pair_behind",),
    "transactions and catalogs": (
        f"{SPARK}/test_transactions.py::test_tables_are_read_and_written_by_their_address",
        f"{SPARK}/test_transactions.py::test_a_path_that_a_catalog_manages_is_refused",
        f"{SPARK}/test_transactions.py::test_spark_sees_what_its_transaction_did_and_nobody_else_does",
        f"{INTEROP}/test_interop_catalog_managed.py::test_delta_spark_refuses_the_path[read]",
        f"{INTEROP}/test_interop_catalog_managed.py::"
        "test_deltalake_reads_and_writes_a_released_table_without_the_features_that_it_lacks",
    ),
    "Unity Catalog's clients and the kernel": (
        f"{INTEROP}/test_unity_official.py",
        f"{INTEROP}/test_unity_kernel.py::test_a_table_is_created[as required]",
        f"{INTEROP}/test_unity_kernel.py::test_rows_and_properties_are_committed_and_published",
        f"{INTEROP}/test_unity_kernel.py::test_the_kernel_reads_what_deltalog_changed",
        f"{INTEROP}/test_unity_kernel.py::test_a_stale_snapshot_of_the_kernel_is_rebased",
        f"{INTEROP}/test_unity_concurrent.py::test_writers_at_once",
        f"{INTEROP}/test_unity_faults.py::test_a_commit[500 after it took effect]",
        f"{INTEROP}/test_unity_faults.py::test_another_writer_while_the_answer_is_lost",
        f"{INTEROP}/test_unity_faults.py::test_a_creation[500 after it took effect]",
        f"{INTEROP}/test_unity_s3.py::test_the_kernel_writes_with_the_keys_of_a_role",
        f"{INTEROP}/test_unity_conformance.py::test_the_kernel[managed-ratified]",
        f"{INTEROP}/test_unity_conformance.py::test_the_kernel[managed-append-to-unpublished]",
        f"{INTEROP}/test_unity_python.py::test_the_sdk_lists_catalogs_and_schemas",
        f"{INTEROP}/test_unity_python.py::test_the_sdk_commits_by_the_older_calls",
        f"{INTEROP}/test_unity_python.py::test_polars_scans_a_table_by_its_name",
        f"{INTEROP}/test_unity_python.py::test_deltalake_refuses_the_path",
    ),
    "deltalake, duckdb, polars": (
        f"{SPARK}/test_other_readers.py::test_a_table_of_spark_ext_is_read_by_others[every type]",
        f"{INTEROP}/test_interop_deltalake.py",
        f"{INTEROP}/test_interop_rewrites.py::test_deltalake_reads_what_is_left",
        f"{INTEROP}/test_interop_rewrites.py::test_deltalake_and_deltalog_delete_in_turn",
        f"{INTEROP}/test_interop_rewrites.py::test_deltalake_reads_vectors",
    ),
    "S3": (
        f"{S3}/test_s3_tables.py::test_a_table_is_created_appended_to_and_read",
        f"{S3}/test_s3_tables.py::test_rows_are_changed[properties1]",
        f"{S3}/test_s3_tables.py::test_tasks_that_fail_are_repeated_and_leave_nothing",
        f"{S3}/test_s3_tables.py::test_errors_of_tasks_have_the_reason_and_no_secret",
        f"{S3}/test_s3_tables.py::test_lost_answers_and_delays_of_the_commit",
        f"{S3}/test_s3_tables.py::test_the_settings_of_the_session_lead_to_the_store",
        f"{S3}/test_s3_tables.py::test_mapped_columns_deletion_vectors_changes_and_odd_names",
        f"{S3}/test_s3_tables.py::test_writers_side_by_side_commit_through_dynamodb[s3-dynamodb]",
        f"{S3}/test_s3_tables.py::test_tables_of_a_catalog",
        f"{S3}/test_s3_tables.py::test_tasks_vacuum",
    ),
    "pairs of writers": (
        f"{INTEROP}/test_interop_pairs.py::test_all_pairs_of_five_writers_have_a_result_for_every_variant",
        f"{INTEROP}/test_interop_pairs.py::test_every_failure_and_every_refusal_has_a_reason",
        f"{INTEROP}/test_interop_pairs.py::test_nothing_fails_with_deltalog_but_what_is_known",
        f"{INTEROP}/test_interop_pairs.py::test_deltalog_and_deltalake_do_what_the_page_says[deltalog-deltalake]",
    ),
    "pages that record what engines do": (
        f"{INTEROP}/test_interop_reports.py",
        f"{INTEROP}/test_interop_conformance.py::test_the_page_is_that_of_the_results",
        f"{INTEROP}/test_interop_conformance.py::test_every_explanation_is_of_a_failure",
        f"{INTEROP}/test_interop_conformance.py::test_links_of_the_page_lead_to_cases_rules_and_sections",
        f"{INTEROP}/test_interop_matrix.py::test_the_page_has_these_rows_and_no_others",
        f"{INTEROP}/test_interop_matrix.py::test_everything_that_can_be_written_has_a_row",
        f"{INTEROP}/test_interop_parity.py::test_the_page_has_these_scenarios_and_no_others",
        f"{SPARK}/test_moved.py::test_the_changes_are_those_that_the_page_names",
    ),
}
ENTRIES = frozenset(entry for entries in USUAL_RUN.values() for entry in entries)


def is_limited(node_id: str) -> bool:
    """Whether a test belongs to a suite of which a default run executes only some of the tests."""
    return node_id.startswith(tuple(f"{suite}/" for suite in SUITES))


def entry_of(node_id: str) -> str | None:
    """The entry that covers a test."""
    module, test = node_id.partition("::")[0], node_id.partition("[")[0]
    return next((each for each in (node_id, test, module) if each in ENTRIES), None)


def without_tests(node_ids: Iterable[str]) -> set[str]:
    """Of the entries in ENTRIES for the modules of these tests, those that cover none of these tests."""
    node_ids = list(node_ids)
    modules = {node_id.partition("::")[0] for node_id in node_ids}
    named = {entry for node_id in node_ids for entry in (node_id, node_id.partition("[")[0])} | modules
    return {entry for entry in ENTRIES if entry.partition("::")[0] in modules and entry not in named}
