//! Relations of the two schemas that PostgreSQL 15 has and that there are none of here: who reads
//! one is told that (0A000), and not that nobody knows it (42P01).
//!
//! Asked is only where nothing has the name, so a relation of a user's own is found before.

use crate::error::SqlError;

/// Those of `pg_catalog`, sorted.
#[rustfmt::skip]
const PG_CATALOG: &[&str] = &[
    "pg_backend_memory_contexts", "pg_config", "pg_file_settings", "pg_hba_file_rules",
    "pg_ident_file_mappings", "pg_largeobject", "pg_replication_origin",
    "pg_replication_origin_status", "pg_shmem_allocations", "pg_stat_recovery_prefetch",
    "pg_stat_replication_slots", "pg_stat_subscription_stats", "pg_stat_xact_all_tables",
    "pg_stat_xact_sys_tables", "pg_stat_xact_user_functions", "pg_stat_xact_user_tables",
    "pg_statio_sys_sequences", "pg_statistic", "pg_statistic_ext_data", "pg_stats_ext",
    "pg_stats_ext_exprs", "pg_subscription_rel", "pg_ts_config_map",
];

/// Those of `information_schema`, sorted.
#[rustfmt::skip]
const INFORMATION_SCHEMA: &[&str] = &[
    "check_constraint_routine_usage",
    "collation_character_set_applicability", "column_column_usage", "column_udt_usage",
    "data_type_privileges", "domain_udt_usage", "foreign_data_wrapper_options",
    "foreign_data_wrappers", "foreign_server_options", "foreign_table_options",
    "routine_column_usage", "routine_routine_usage", "routine_sequence_usage",
    "routine_table_usage", "sql_features", "sql_implementation_info", "sql_parts", "sql_sizing",
    "transforms", "user_mapping_options", "user_mappings", "view_column_usage",
];

/// The refusal of a name in FROM, if it is of such a relation.
pub(crate) fn absent_relation(schema: Option<&str>, name: &str) -> Option<SqlError> {
    let names = match schema {
        None | Some("pg_catalog") => PG_CATALOG,
        Some("information_schema") => INFORMATION_SCHEMA,
        Some(_) => return None,
    };
    let is_one = names.binary_search(&name).is_ok();
    is_one.then(|| SqlError::unsupported(format_args!("relation \"{name}\"")))
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn names_are_sorted_and_of_nothing_that_is_here() {
        for (schema, names) in [("pg_catalog", PG_CATALOG), ("information_schema", INFORMATION_SCHEMA)] {
            for pair in names.windows(2) {
                assert!(pair[0] < pair[1], "{pair:?}");
            }
            for name in names {
                assert!(table(schema, name).is_none(), "{schema}.{name} is here");
                let refused = absent_relation(Some(schema), name).expect(name);
                assert_eq!(refused.sqlstate, "0A000", "{name}");
            }
        }
        let unknown = [(None, "pg_nothing"), (Some("public"), "pg_largeobject"), (None, "sql_features")];
        for (schema, name) in unknown {
            assert!(absent_relation(schema, name).is_none(), "{name}");
        }
    }
}
