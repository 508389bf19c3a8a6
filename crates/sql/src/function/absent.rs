//! Functions and operators that PostgreSQL 15 has and that there are none of here: who calls one is
//! told that (0A000), and not that nobody knows it (42883).
//!
//! Asked is only where nothing has the name, so a function of a user's own is found before.

use super::registry;
use crate::error::SqlError;
use crate::types::{Type, TypeId};

/// Names of functions, sorted: of text search, large objects, ranges, `jsonpath`, XML, geometry,
/// the server's files and its administration, replication, some about the catalog, and those that
/// the views of statistics are made of.
#[rustfmt::skip]
const FUNCTIONS: &[&str] = &[
    "abbrev", "aclcontains", "aclinsert", "aclremove", "amvalidate", "area", "array_to_tsvector",
    "bound_box", "box", "brin_desummarize_range", "brin_summarize_new_values",
    "brin_summarize_range", "cash_words", "center", "convert", "currtid2", "cursor_to_xml",
    "cursor_to_xmlschema", "database_to_xml", "database_to_xml_and_xmlschema",
    "database_to_xmlschema", "datemultirange", "daterange", "dexp", "diagonal", "diameter", "dlog1",
    "dlog10", "dround", "dtrunc", "get_current_ts_config", "gin_clean_pending_list",
    "has_foreign_data_wrapper_privilege", "has_parameter_privilege", "has_server_privilege",
    "height", "int4inc", "int4multirange", "int4range", "int8_sum", "int8multirange", "int8range",
    "isclosed", "isempty", "ishorizontal", "isopen", "isparallel", "isperp", "isvertical",
    "json_to_tsvector", "jsonb_path_exists", "jsonb_path_exists_tz", "jsonb_path_match",
    "jsonb_path_match_tz", "jsonb_path_query", "jsonb_path_query_array",
    "jsonb_path_query_array_tz", "jsonb_path_query_first", "jsonb_path_query_first_tz",
    "jsonb_path_query_tz", "jsonb_to_tsvector", "lo_close", "lo_creat", "lo_create", "lo_export",
    "lo_from_bytea", "lo_get", "lo_import", "lo_lseek", "lo_lseek64", "lo_open", "lo_put",
    "lo_tell", "lo_tell64", "lo_truncate", "lo_truncate64", "lo_unlink", "loread", "lower_inc",
    "lower_inf", "lowrite", "lseg", "macaddr8_set7bit", "makeaclitem", "multirange",
    "nameconcatoid", "npoints", "numeric_div_trunc", "numeric_exp", "numeric_ln", "numeric_log",
    "numeric_sqrt", "nummultirange", "numnode", "numrange", "pclose",
    "pg_available_extension_versions", "pg_available_extensions", "pg_backup_start",
    "pg_backup_stop", "pg_collation_for", "pg_column_compression", "pg_config",
    "pg_control_checkpoint", "pg_control_init", "pg_control_recovery", "pg_control_system",
    "pg_copy_logical_replication_slot", "pg_copy_physical_replication_slot",
    "pg_create_logical_replication_slot", "pg_create_physical_replication_slot",
    "pg_create_restore_point", "pg_current_logfile", "pg_drop_replication_slot",
    "pg_encoding_max_length", "pg_event_trigger_ddl_commands",
    "pg_event_trigger_dropped_objects", "pg_event_trigger_table_rewrite_oid",
    "pg_event_trigger_table_rewrite_reason", "pg_extension_config_dump",
    "pg_extension_update_paths", "pg_filenode_relation", "pg_get_backend_memory_contexts",
    "pg_get_catalog_foreign_keys", "pg_get_multixact_members", "pg_get_object_address",
    "pg_get_publication_tables", "pg_get_replica_identity_index",
    "pg_get_replication_slots", "pg_get_shmem_allocations", "pg_get_statisticsobjdef_expressions",
    "pg_get_wal_resource_managers", "pg_hba_file_rules", "pg_ident_file_mappings",
    "pg_identify_object", "pg_identify_object_as_address", "pg_import_system_collations",
    "pg_indexam_progress_phasename", "pg_last_committed_xact", "pg_log_backend_memory_contexts",
    "pg_logical_emit_message", "pg_logical_slot_get_binary_changes", "pg_logical_slot_get_changes",
    "pg_logical_slot_peek_binary_changes", "pg_logical_slot_peek_changes",
    "pg_ls_archive_statusdir", "pg_ls_dir", "pg_ls_logdir", "pg_ls_logicalmapdir",
    "pg_ls_logicalsnapdir", "pg_ls_replslotdir", "pg_ls_tmpdir", "pg_mcv_list_items", "pg_nextoid",
    "pg_prepared_xact", "pg_promote", "pg_read_binary_file", "pg_read_file",
    "pg_relation_filepath", "pg_reload_conf", "pg_replication_origin_advance",
    "pg_replication_origin_create", "pg_replication_origin_drop", "pg_replication_origin_oid",
    "pg_replication_origin_progress", "pg_replication_origin_session_is_setup",
    "pg_replication_origin_session_progress", "pg_replication_origin_session_reset",
    "pg_replication_origin_session_setup", "pg_replication_origin_xact_reset",
    "pg_replication_origin_xact_setup", "pg_replication_slot_advance", "pg_rotate_logfile",
    "pg_safe_snapshot_blocking_pids", "pg_settings_get_flags",
    "pg_show_all_file_settings", "pg_show_replication_origin_status",
    "pg_stat_file", "pg_stat_get_activity", "pg_stat_get_analyze_count",
    "pg_stat_get_archiver", "pg_stat_get_autoanalyze_count", "pg_stat_get_autovacuum_count",
    "pg_stat_get_backend_activity", "pg_stat_get_backend_activity_start",
    "pg_stat_get_backend_client_addr", "pg_stat_get_backend_client_port",
    "pg_stat_get_backend_dbid", "pg_stat_get_backend_idset", "pg_stat_get_backend_pid",
    "pg_stat_get_backend_start", "pg_stat_get_backend_userid", "pg_stat_get_backend_wait_event",
    "pg_stat_get_backend_wait_event_type", "pg_stat_get_backend_xact_start",
    "pg_stat_get_bgwriter_buf_written_checkpoints", "pg_stat_get_bgwriter_buf_written_clean",
    "pg_stat_get_bgwriter_maxwritten_clean", "pg_stat_get_bgwriter_requested_checkpoints",
    "pg_stat_get_bgwriter_stat_reset_time", "pg_stat_get_bgwriter_timed_checkpoints",
    "pg_stat_get_blocks_fetched", "pg_stat_get_blocks_hit", "pg_stat_get_buf_alloc",
    "pg_stat_get_buf_fsync_backend", "pg_stat_get_buf_written_backend",
    "pg_stat_get_checkpoint_sync_time", "pg_stat_get_checkpoint_write_time",
    "pg_stat_get_db_active_time", "pg_stat_get_db_blk_read_time", "pg_stat_get_db_blk_write_time",
    "pg_stat_get_db_blocks_fetched", "pg_stat_get_db_blocks_hit",
    "pg_stat_get_db_checksum_failures", "pg_stat_get_db_checksum_last_failure",
    "pg_stat_get_db_conflict_all", "pg_stat_get_db_conflict_bufferpin",
    "pg_stat_get_db_conflict_lock", "pg_stat_get_db_conflict_snapshot",
    "pg_stat_get_db_conflict_startup_deadlock", "pg_stat_get_db_conflict_tablespace",
    "pg_stat_get_db_deadlocks", "pg_stat_get_db_idle_in_transaction_time",
    "pg_stat_get_db_session_time", "pg_stat_get_db_sessions", "pg_stat_get_db_sessions_abandoned",
    "pg_stat_get_db_sessions_fatal", "pg_stat_get_db_sessions_killed",
    "pg_stat_get_db_temp_bytes", "pg_stat_get_db_temp_files",
    "pg_stat_get_db_xact_commit", "pg_stat_get_db_xact_rollback",
    "pg_stat_get_function_calls", "pg_stat_get_function_self_time",
    "pg_stat_get_function_total_time", "pg_stat_get_ins_since_vacuum",
    "pg_stat_get_mod_since_analyze", "pg_stat_get_recovery_prefetch",
    "pg_stat_get_replication_slot", "pg_stat_get_slru", "pg_stat_get_snapshot_timestamp",
    "pg_stat_get_subscription", "pg_stat_get_subscription_stats", "pg_stat_get_tuples_hot_updated",
    "pg_stat_get_vacuum_count", "pg_stat_get_wal", "pg_stat_get_wal_receiver",
    "pg_stat_get_wal_senders", "pg_stat_get_xact_blocks_fetched", "pg_stat_get_xact_blocks_hit",
    "pg_stat_get_xact_function_calls", "pg_stat_get_xact_function_self_time",
    "pg_stat_get_xact_function_total_time", "pg_stat_get_xact_numscans",
    "pg_stat_get_xact_tuples_deleted", "pg_stat_get_xact_tuples_fetched",
    "pg_stat_get_xact_tuples_hot_updated", "pg_stat_get_xact_tuples_inserted",
    "pg_stat_get_xact_tuples_returned", "pg_stat_get_xact_tuples_updated", "pg_stat_have_stats",
    "pg_stat_reset_replication_slot", "pg_stat_reset_shared",
    "pg_stat_reset_single_function_counters",
    "pg_stat_reset_slru", "pg_stat_reset_subscription_stats", "pg_switch_wal",
    "pg_tablespace_databases", "pg_walfile_name", "pg_walfile_name_offset",
    "pg_xact_commit_timestamp", "pg_xact_commit_timestamp_origin", "pg_xact_status",
    "phraseto_tsquery", "plainto_tsquery", "point", "polygon", "popen", "query_to_xml",
    "query_to_xml_and_xmlschema", "query_to_xmlschema", "querytree", "radius", "range_agg",
    "range_intersect_agg", "range_merge", "satisfies_hash_partition", "schema_to_xml",
    "schema_to_xml_and_xmlschema", "schema_to_xmlschema", "setweight", "similar_escape", "slope",
    "strip", "suppress_redundant_updates_trigger", "table_to_xml", "table_to_xml_and_xmlschema",
    "table_to_xmlschema", "textlen", "to_ascii", "to_regcollation", "to_regoper", "to_regoperator",
    "to_tsquery", "to_tsvector", "ts_debug", "ts_delete", "ts_filter", "ts_headline", "ts_lexize",
    "ts_parse", "ts_rank", "ts_rank_cd", "ts_rewrite", "ts_stat", "ts_token_type", "tsmultirange",
    "tsquery_phrase", "tsrange", "tstzmultirange", "tstzrange", "tsvector_to_array",
    "tsvector_update_trigger", "tsvector_update_trigger_column", "txid_status", "upper_inc",
    "upper_inf", "websearch_to_tsquery", "width", "xml_is_well_formed",
    "xml_is_well_formed_content", "xml_is_well_formed_document", "xmlagg", "xmlcomment",
    "xmlexists", "xmlvalidate", "xpath", "xpath_exists",
];

/// Names of what stands behind PostgreSQL's operators, types, casts, indexes and aggregates.
const BEHIND: &str = include_str!("absent.txt");

/// Operators: of text search, `jsonpath`, geometry and ranges, and of what records look like.
const OPERATORS: &[&str] = &[
    "@@", "@?", "<->", "-|-", "##", "~=", "@-@", "?-", "?-|", "?||", "&<", "&>", "<<|", "|>>", "&<|", "|&>",
    "!!", "<^", ">^", "?#", "*=", "*<>", "*<", "*<=", "*>", "*>=",
];

fn behind() -> impl Iterator<Item = &'static str> {
    BEHIND.split_ascii_whitespace()
}

/// The refusal of a call, if it is of such a function.
pub(super) fn function(schema: Option<&str>, name: &str) -> Option<SqlError> {
    let is_known = || FUNCTIONS.binary_search(&name).is_ok() || behind().any(|known| known == name);
    let is_meant = matches!(schema, None | Some("pg_catalog")) && is_known();
    (is_meant && registry::named(name).is_empty())
        .then(|| SqlError::unsupported(format_args!("function {name}")))
}

/// The refusal of a call that PostgreSQL has a function for of a type that there is none of here:
/// AT TIME ZONE makes a `time` one with a time zone.
pub(super) fn for_type(schema: Option<&str>, name: &str, arguments: &[Type]) -> Option<SqlError> {
    let is_meant = matches!(schema, None | Some("pg_catalog")) && name == "timezone";
    let is_time = matches!(arguments, [zone, time] if time.id == TypeId::Time
        && matches!(zone.id, TypeId::Unknown | TypeId::Text | TypeId::Interval));
    (is_meant && is_time).then(|| SqlError::unsupported("type \"time with time zone\""))
}

/// The refusal of an operator, if it is such a one.
pub(super) fn operator(name: &str) -> Option<SqlError> {
    OPERATORS.contains(&name).then(|| SqlError::unsupported(format_args!("operator {name}")))
}

#[cfg(test)]
mod tests {
    use super::super::{operator, resolve};
    use super::*;

    #[test]
    fn names_are_sorted_and_of_nothing_that_is_here() {
        for pair in FUNCTIONS.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for name in FUNCTIONS {
            assert!(registry::named(name).is_empty(), "{name} is here");
        }
        for (name, next) in behind().zip(behind().skip(1)) {
            assert!(name < next, "{name}, {next}");
        }
    }

    #[test]
    fn what_postgresql_has_is_refused_by_name() {
        let text = Type::new(TypeId::Text);
        for schema in [None, Some("pg_catalog")] {
            let refused = resolve(schema, "to_tsvector", &[text]).expect_err("no function");
            assert_eq!(refused.sqlstate, "0A000");
            assert_eq!(refused.message, "function to_tsvector is not supported");
        }
        let refused = resolve(None, "texteq", &[text, text]).expect_err("no function");
        assert_eq!(refused.message, "function texteq is not supported");
        for (schema, name) in [(Some("shop"), "to_tsvector"), (None, "to_nothing")] {
            let unknown = resolve(schema, name, &[text]).expect_err("no function");
            assert_eq!(unknown.sqlstate, "42883", "{name}");
        }
        let refused = operator::resolve("@@", Some(text), text).expect_err("no operator");
        assert_eq!(refused.sqlstate, "0A000");
        assert_eq!(refused.message, "operator @@ is not supported");
        let unknown = operator::resolve("@@@", Some(text), text).expect_err("no operator");
        assert_eq!(unknown.sqlstate, "42883");
    }
}
