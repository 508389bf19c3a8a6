//! Conditions: names for SQLSTATEs, as PostgreSQL's list of error codes has them.

use std::collections::HashSet;

use parking_lot::Mutex;

use super::reader::Reader;
use crate::error::{Result, SqlError, sqlstate};

/// What a handler is for, and what RAISE can raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// OTHERS: all but what nobody asked for by name.
    Others,
    /// A SQLSTATE; one that ends with 000 stands for its class.
    State(&'static str),
}

/// Whether one of them is for an error.
pub(crate) fn matches(conditions: &[Condition], state: &str) -> bool {
    conditions.iter().any(|condition| match condition {
        Condition::Others => state != sqlstate::QUERY_CANCELED && state != ASSERT_FAILURE,
        Condition::State(wanted) => {
            *wanted == state || (wanted.ends_with("000") && state.get(..2) == wanted.get(..2))
        }
    })
}

const ASSERT_FAILURE: &str = "P0004";

/// So many SQLSTATEs can be made up.
const OWN_MAX: usize = 4096;

/// A SQLSTATE that a block made up, for as long as the process lives.
///
/// # Errors
///
/// 42601 for what is none; 54000 beyond [`OWN_MAX`].
pub(crate) fn interned(state: &str) -> Result<&'static str> {
    static OWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let is_state = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    if state.len() != 5 || !state.bytes().all(is_state) {
        return Err(SqlError::syntax("invalid SQLSTATE code"));
    }
    if let Some((_, known)) = NAMED.iter().find(|(_, known)| *known == state) {
        return Ok(known);
    }
    let mut own = OWN.lock();
    let own = own.get_or_insert_default();
    if let Some(known) = own.get(state) {
        return Ok(known);
    }
    if own.len() >= OWN_MAX {
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many SQLSTATEs of their own"));
    }
    let kept: &'static str = Box::leak(state.to_owned().into_boxed_str());
    own.insert(kept);
    Ok(kept)
}

/// The SQLSTATE of a name. 42704.
pub(crate) fn named(name: &str) -> Result<&'static str> {
    let unknown =
        || SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized exception condition \"{name}\""));
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, state)| *state).ok_or_else(unknown)
}

/// A condition by its name, or `SQLSTATE 'xxxxx'`.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Condition> {
    if reader.take("sqlstate") {
        let text = super::raise::string(reader)?;
        return interned(&text).map(Condition::State);
    }
    let name = reader.name()?;
    if name == "others" { Ok(Condition::Others) } else { named(&name).map(Condition::State) }
}

/// Names of errors. What PostgreSQL has under several SQLSTATEs stands with that of the error.
const NAMED: &[(&str, &str)] = &[
    ("sql_statement_not_yet_complete", "03000"),
    ("connection_exception", "08000"),
    ("connection_does_not_exist", "08003"),
    ("connection_failure", "08006"),
    ("sqlclient_unable_to_establish_sqlconnection", "08001"),
    ("sqlserver_rejected_establishment_of_sqlconnection", "08004"),
    ("transaction_resolution_unknown", "08007"),
    ("protocol_violation", "08P01"),
    ("triggered_action_exception", "09000"),
    ("feature_not_supported", "0A000"),
    ("invalid_transaction_initiation", "0B000"),
    ("locator_exception", "0F000"),
    ("invalid_locator_specification", "0F001"),
    ("invalid_grantor", "0L000"),
    ("invalid_grant_operation", "0LP01"),
    ("invalid_role_specification", "0P000"),
    ("diagnostics_exception", "0Z000"),
    ("stacked_diagnostics_accessed_without_active_handler", "0Z002"),
    ("case_not_found", "20000"),
    ("cardinality_violation", "21000"),
    ("data_exception", "22000"),
    ("array_subscript_error", "2202E"),
    ("character_not_in_repertoire", "22021"),
    ("datetime_field_overflow", "22008"),
    ("division_by_zero", "22012"),
    ("error_in_assignment", "22005"),
    ("escape_character_conflict", "2200B"),
    ("indicator_overflow", "22022"),
    ("interval_field_overflow", "22015"),
    ("invalid_argument_for_logarithm", "2201E"),
    ("invalid_argument_for_ntile_function", "22014"),
    ("invalid_argument_for_nth_value_function", "22016"),
    ("invalid_argument_for_power_function", "2201F"),
    ("invalid_argument_for_width_bucket_function", "2201G"),
    ("invalid_character_value_for_cast", "22018"),
    ("invalid_datetime_format", "22007"),
    ("invalid_escape_character", "22019"),
    ("invalid_escape_octet", "2200D"),
    ("invalid_escape_sequence", "22025"),
    ("nonstandard_use_of_escape_character", "22P06"),
    ("invalid_indicator_parameter_value", "22010"),
    ("invalid_parameter_value", "22023"),
    ("invalid_preceding_or_following_size", "22013"),
    ("invalid_regular_expression", "2201B"),
    ("invalid_row_count_in_limit_clause", "2201W"),
    ("invalid_row_count_in_result_offset_clause", "2201X"),
    ("invalid_tablesample_argument", "2202H"),
    ("invalid_tablesample_repeat", "2202G"),
    ("invalid_time_zone_displacement_value", "22009"),
    ("invalid_use_of_escape_character", "2200C"),
    ("most_specific_type_mismatch", "2200G"),
    ("null_value_not_allowed", "22004"),
    ("null_value_no_indicator_parameter", "22002"),
    ("numeric_value_out_of_range", "22003"),
    ("sequence_generator_limit_exceeded", "2200H"),
    ("string_data_length_mismatch", "22026"),
    ("string_data_right_truncation", "22001"),
    ("substring_error", "22011"),
    ("trim_error", "22027"),
    ("unterminated_c_string", "22024"),
    ("zero_length_character_string", "2200F"),
    ("floating_point_exception", "22P01"),
    ("invalid_text_representation", "22P02"),
    ("invalid_binary_representation", "22P03"),
    ("bad_copy_file_format", "22P04"),
    ("untranslatable_character", "22P05"),
    ("duplicate_json_object_key_value", "22030"),
    ("invalid_json_text", "22032"),
    ("integrity_constraint_violation", "23000"),
    ("restrict_violation", "23001"),
    ("not_null_violation", "23502"),
    ("foreign_key_violation", "23503"),
    ("unique_violation", "23505"),
    ("check_violation", "23514"),
    ("exclusion_violation", "23P01"),
    ("invalid_cursor_state", "24000"),
    ("invalid_transaction_state", "25000"),
    ("active_sql_transaction", "25001"),
    ("branch_transaction_already_active", "25002"),
    ("held_cursor_requires_same_isolation_level", "25008"),
    ("inappropriate_access_mode_for_branch_transaction", "25003"),
    ("inappropriate_isolation_level_for_branch_transaction", "25004"),
    ("no_active_sql_transaction_for_branch_transaction", "25005"),
    ("read_only_sql_transaction", "25006"),
    ("schema_and_data_statement_mixing_not_supported", "25007"),
    ("no_active_sql_transaction", "25P01"),
    ("in_failed_sql_transaction", "25P02"),
    ("idle_in_transaction_session_timeout", "25P03"),
    ("invalid_sql_statement_name", "26000"),
    ("triggered_data_change_violation", "27000"),
    ("invalid_authorization_specification", "28000"),
    ("invalid_password", "28P01"),
    ("dependent_privilege_descriptors_still_exist", "2B000"),
    ("dependent_objects_still_exist", "2BP01"),
    ("invalid_transaction_termination", "2D000"),
    ("sql_routine_exception", "2F000"),
    ("function_executed_no_return_statement", "2F005"),
    ("modifying_sql_data_not_permitted", "2F002"),
    ("prohibited_sql_statement_attempted", "2F003"),
    ("reading_sql_data_not_permitted", "2F004"),
    ("invalid_cursor_name", "34000"),
    ("external_routine_exception", "38000"),
    ("external_routine_invocation_exception", "39000"),
    ("invalid_sqlstate_returned", "39001"),
    ("trigger_protocol_violated", "39P01"),
    ("srf_protocol_violated", "39P02"),
    ("savepoint_exception", "3B000"),
    ("invalid_savepoint_specification", "3B001"),
    ("invalid_catalog_name", "3D000"),
    ("invalid_schema_name", "3F000"),
    ("transaction_rollback", "40000"),
    ("transaction_integrity_constraint_violation", "40002"),
    ("serialization_failure", "40001"),
    ("statement_completion_unknown", "40003"),
    ("deadlock_detected", "40P01"),
    ("syntax_error_or_access_rule_violation", "42000"),
    ("syntax_error", "42601"),
    ("insufficient_privilege", "42501"),
    ("cannot_coerce", "42846"),
    ("grouping_error", "42803"),
    ("windowing_error", "42P20"),
    ("invalid_recursion", "42P19"),
    ("invalid_foreign_key", "42830"),
    ("invalid_name", "42602"),
    ("name_too_long", "42622"),
    ("reserved_name", "42939"),
    ("datatype_mismatch", "42804"),
    ("indeterminate_datatype", "42P18"),
    ("collation_mismatch", "42P21"),
    ("indeterminate_collation", "42P22"),
    ("wrong_object_type", "42809"),
    ("generated_always", "428C9"),
    ("undefined_column", "42703"),
    ("undefined_function", "42883"),
    ("undefined_table", "42P01"),
    ("undefined_parameter", "42P02"),
    ("undefined_object", "42704"),
    ("duplicate_column", "42701"),
    ("duplicate_cursor", "42P03"),
    ("duplicate_database", "42P04"),
    ("duplicate_function", "42723"),
    ("duplicate_prepared_statement", "42P05"),
    ("duplicate_schema", "42P06"),
    ("duplicate_table", "42P07"),
    ("duplicate_alias", "42712"),
    ("duplicate_object", "42710"),
    ("ambiguous_column", "42702"),
    ("ambiguous_function", "42725"),
    ("ambiguous_parameter", "42P08"),
    ("ambiguous_alias", "42P09"),
    ("invalid_column_reference", "42P10"),
    ("invalid_column_definition", "42611"),
    ("invalid_cursor_definition", "42P11"),
    ("invalid_database_definition", "42P12"),
    ("invalid_function_definition", "42P13"),
    ("invalid_prepared_statement_definition", "42P14"),
    ("invalid_schema_definition", "42P15"),
    ("invalid_table_definition", "42P16"),
    ("invalid_object_definition", "42P17"),
    ("with_check_option_violation", "44000"),
    ("insufficient_resources", "53000"),
    ("disk_full", "53100"),
    ("out_of_memory", "53200"),
    ("too_many_connections", "53300"),
    ("configuration_limit_exceeded", "53400"),
    ("program_limit_exceeded", "54000"),
    ("statement_too_complex", "54001"),
    ("too_many_columns", "54011"),
    ("too_many_arguments", "54023"),
    ("object_not_in_prerequisite_state", "55000"),
    ("object_in_use", "55006"),
    ("cant_change_runtime_param", "55P02"),
    ("lock_not_available", "55P03"),
    ("unsafe_new_enum_value_usage", "55P04"),
    ("operator_intervention", "57000"),
    ("query_canceled", "57014"),
    ("admin_shutdown", "57P01"),
    ("crash_shutdown", "57P02"),
    ("cannot_connect_now", "57P03"),
    ("database_dropped", "57P04"),
    ("idle_session_timeout", "57P05"),
    ("system_error", "58000"),
    ("io_error", "58030"),
    ("undefined_file", "58P01"),
    ("duplicate_file", "58P02"),
    ("snapshot_too_old", "72000"),
    ("config_file_error", "F0000"),
    ("lock_file_exists", "F0001"),
    ("fdw_error", "HV000"),
    ("plpgsql_error", "P0000"),
    ("raise_exception", "P0001"),
    ("no_data_found", "P0002"),
    ("too_many_rows", "P0003"),
    ("assert_failure", ASSERT_FAILURE),
    ("internal_error", "XX000"),
    ("data_corrupted", "XX001"),
    ("index_corrupted", "XX002"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_stands_for_its_errors() {
        let class = [Condition::State(named("integrity_constraint_violation").unwrap())];
        assert!(matches(&class, sqlstate::UNIQUE_VIOLATION));
        assert!(!matches(&class, sqlstate::DIVISION_BY_ZERO));
        let one = [Condition::State(named("unique_violation").unwrap())];
        assert!(!matches(&one, sqlstate::CHECK_VIOLATION));
        assert!(!matches(&[Condition::Others], sqlstate::QUERY_CANCELED));
    }

    #[test]
    fn a_state_of_its_own_is_kept_once() {
        let first = interned("ZZ123").unwrap();
        assert!(std::ptr::eq(first, interned("ZZ123").unwrap()));
        assert_eq!(interned("zz123").unwrap_err().sqlstate, sqlstate::SYNTAX_ERROR);
        assert_eq!(interned("ZZ12").unwrap_err().sqlstate, sqlstate::SYNTAX_ERROR);
    }
}
