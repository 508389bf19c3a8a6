//! SQL errors: one value that carries what PostgreSQL's ErrorResponse carries.
//!
//! Every error knows its SQLSTATE, so a client can decide what to do (retry on class 40, fix the
//! statement on class 42, wait on 53/57, restore on XX001). The value is one pointer wide: results
//! of the hot path stay small.

use std::fmt;
use std::ops::{Deref, DerefMut};

use cognate_engine::{Key, TreeId};

/// The SQLSTATE constants in use, named as in PostgreSQL's `errcodes.txt`. Five characters each.
pub mod sqlstate {
    macro_rules! states {
        ($($name:ident = $value:literal;)*) => {
            $(#[doc = concat!("SQLSTATE ", $value)] pub const $name: &str = $value;)*
        };
    }
    states! {
        SUCCESSFUL_COMPLETION = "00000";
        WARNING = "01000";
        PRIVILEGE_NOT_REVOKED = "01006";
        PRIVILEGE_NOT_GRANTED = "01007";
        FEATURE_NOT_SUPPORTED = "0A000";
        PROTOCOL_VIOLATION = "08P01";
        CONNECTION_FAILURE = "08006";
        INVALID_GRANT_OPERATION = "0LP01";
        CARDINALITY_VIOLATION = "21000";
        DATA_EXCEPTION = "22000";
        STRING_DATA_RIGHT_TRUNCATION = "22001";
        NULL_VALUE_NOT_ALLOWED = "22004";
        NUMERIC_VALUE_OUT_OF_RANGE = "22003";
        INVALID_DATETIME_FORMAT = "22007";
        DATETIME_FIELD_OVERFLOW = "22008";
        INVALID_TIME_ZONE_DISPLACEMENT_VALUE = "22009";
        SUBSTRING_ERROR = "22011";
        DIVISION_BY_ZERO = "22012";
        INVALID_PRECEDING_OR_FOLLOWING_SIZE = "22013";
        INVALID_ARGUMENT_FOR_NTILE = "22014";
        INTERVAL_FIELD_OVERFLOW = "22015";
        INVALID_ARGUMENT_FOR_NTH_VALUE = "22016";
        INVALID_ARGUMENT_FOR_LOGARITHM = "2201E";
        INVALID_ARGUMENT_FOR_POWER_FUNCTION = "2201F";
        INVALID_ROW_COUNT_IN_LIMIT_CLAUSE = "2201W";
        INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE = "2201X";
        INVALID_REGULAR_EXPRESSION = "2201B";
        INVALID_USE_OF_ESCAPE_CHARACTER = "2200C";
        CHARACTER_NOT_IN_REPERTOIRE = "22021";
        INVALID_PARAMETER_VALUE = "22023";
        INVALID_ESCAPE_SEQUENCE = "22025";
        ARRAY_SUBSCRIPT_ERROR = "2202E";
        INVALID_TEXT_REPRESENTATION = "22P02";
        INVALID_BINARY_REPRESENTATION = "22P03";
        BAD_COPY_FILE_FORMAT = "22P04";
        UNTRANSLATABLE_CHARACTER = "22P05";
        SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H";
        INTEGRITY_CONSTRAINT_VIOLATION = "23000";
        RESTRICT_VIOLATION = "23001";
        NOT_NULL_VIOLATION = "23502";
        FOREIGN_KEY_VIOLATION = "23503";
        UNIQUE_VIOLATION = "23505";
        CHECK_VIOLATION = "23514";
        INVALID_CURSOR_STATE = "24000";
        INVALID_TRANSACTION_STATE = "25000";
        ACTIVE_SQL_TRANSACTION = "25001";
        READ_ONLY_SQL_TRANSACTION = "25006";
        NO_ACTIVE_SQL_TRANSACTION = "25P01";
        IN_FAILED_SQL_TRANSACTION = "25P02";
        TRANSACTION_RESOLUTION_UNKNOWN = "08007";
        IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
        INVALID_SQL_STATEMENT_NAME = "26000";
        INVALID_AUTHORIZATION_SPECIFICATION = "28000";
        INVALID_PASSWORD = "28P01";
        DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
        INVALID_CURSOR_NAME = "34000";
        SAVEPOINT_EXCEPTION = "3B001";
        EXTERNAL_ROUTINE_INVOCATION_EXCEPTION = "39000";
        INVALID_CATALOG_NAME = "3D000";
        INVALID_SCHEMA_NAME = "3F000";
        TRANSACTION_ROLLBACK = "40000";
        SERIALIZATION_FAILURE = "40001";
        TRANSACTION_INTEGRITY_CONSTRAINT_VIOLATION = "40002";
        STATEMENT_COMPLETION_UNKNOWN = "40003";
        DEADLOCK_DETECTED = "40P01";
        MIP_XID_EMPTY = "MI001";
        MIP_XID_TOO_LONG = "MI002";
        MIP_XID_HAS_NUL = "MI003";
        MIP_INSTANCE_NOT_POSITIVE = "MI004";
        MIP_INSTANCE_IN_USE = "MI010";
        MIP_INSTANCE_ABORTED = "MI011";
        MIP_INSTANCE_UNKNOWN = "MI012";
        MIP_INSTANCE_NOT_PREPARED = "MI013";
        MIP_DECIDED_OTHERWISE = "MI014";
        MIP_DECIDED = "MI015";
        MIP_REQUEST_DIFFERS = "MI020";
        MIP_REQUEST_TOO_LARGE = "MI021";
        MIP_RESULT_TOO_LARGE = "MI022";
        MIP_NOT_DECIDED = "MI030";
        MIP_FAMILY_UNKNOWN = "MI031";
        MIP_FORGOTTEN = "MI032";
        MIP_IN_ORDINARY_TRANSACTION = "MI040";
        MIP_OTHER_TRANSACTION = "MI041";
        SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION = "42000";
        SYNTAX_ERROR = "42601";
        INSUFFICIENT_PRIVILEGE = "42501";
        CANNOT_COERCE = "42846";
        GROUPING_ERROR = "42803";
        WINDOWING_ERROR = "42P20";
        INVALID_RECURSION = "42P19";
        INVALID_FOREIGN_KEY = "42830";
        INVALID_NAME = "42602";
        NAME_TOO_LONG = "42622";
        RESERVED_NAME = "42939";
        DATATYPE_MISMATCH = "42804";
        INDETERMINATE_DATATYPE = "42P18";
        WRONG_OBJECT_TYPE = "42809";
        GENERATED_ALWAYS = "428C9";
        UNDEFINED_COLUMN = "42703";
        UNDEFINED_FUNCTION = "42883";
        UNDEFINED_TABLE = "42P01";
        UNDEFINED_PARAMETER = "42P02";
        UNDEFINED_OBJECT = "42704";
        DUPLICATE_COLUMN = "42701";
        DUPLICATE_CURSOR = "42P03";
        DUPLICATE_DATABASE = "42P04";
        DUPLICATE_PREPARED_STATEMENT = "42P05";
        DUPLICATE_SCHEMA = "42P06";
        DUPLICATE_TABLE = "42P07";
        DUPLICATE_ALIAS = "42712";
        DUPLICATE_FUNCTION = "42723";
        DUPLICATE_OBJECT = "42710";
        AMBIGUOUS_COLUMN = "42702";
        AMBIGUOUS_FUNCTION = "42725";
        AMBIGUOUS_PARAMETER = "42P08";
        INVALID_COLUMN_REFERENCE = "42P10";
        INVALID_COLUMN_DEFINITION = "42611";
        INVALID_CURSOR_DEFINITION = "42P11";
        INVALID_FUNCTION_DEFINITION = "42P13";
        INVALID_PREPARED_STATEMENT_DEFINITION = "42P14";
        INVALID_SCHEMA_DEFINITION = "42P15";
        INVALID_TABLE_DEFINITION = "42P16";
        INVALID_OBJECT_DEFINITION = "42P17";
        WITH_CHECK_OPTION_VIOLATION = "44000";
        INSUFFICIENT_RESOURCES = "53000";
        DISK_FULL = "53100";
        OUT_OF_MEMORY = "53200";
        TOO_MANY_CONNECTIONS = "53300";
        CONFIGURATION_LIMIT_EXCEEDED = "53400";
        PROGRAM_LIMIT_EXCEEDED = "54000";
        STATEMENT_TOO_COMPLEX = "54001";
        TOO_MANY_COLUMNS = "54011";
        TOO_MANY_ARGUMENTS = "54023";
        OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
        OBJECT_IN_USE = "55006";
        CANT_CHANGE_RUNTIME_PARAM = "55P02";
        LOCK_NOT_AVAILABLE = "55P03";
        QUERY_CANCELED = "57014";
        ADMIN_SHUTDOWN = "57P01";
        CRASH_SHUTDOWN = "57P02";
        CANNOT_CONNECT_NOW = "57P03";
        IO_ERROR = "58030";
        INTERNAL_ERROR = "XX000";
        DATA_CORRUPTED = "XX001";
        INDEX_CORRUPTED = "XX002";
    }
}

/// How grave a report is; the `S` and `V` fields of the wire message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// The server ends.
    Panic,
    /// Reported, and the statement goes on.
    Warning,
    /// Reported, and the statement goes on.
    Notice,
    /// Reported only to who asks for it.
    Info,
}

impl Severity {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Panic => "PANIC",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
            Severity::Info => "INFO",
        }
    }
}

/// What an error says. Reached through [`SqlError`], which dereferences to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFields {
    /// How grave it is.
    pub severity: Severity,
    /// Five characters, see [`sqlstate`].
    pub sqlstate: &'static str,
    /// The primary message, in PostgreSQL's words where PostgreSQL has the same error.
    pub message: String,
    /// More facts.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// 1-based position in the statement, in characters.
    pub position: Option<u32>,
    /// Schema of the object at fault.
    pub schema: Option<String>,
    /// Table at fault.
    pub table: Option<String>,
    /// Column at fault.
    pub column: Option<String>,
    /// Data type at fault.
    pub data_type: Option<String>,
    /// Constraint at fault.
    pub constraint: Option<String>,
    /// Where it happened inside a COPY or similar.
    pub context: Option<String>,
    /// PostgreSQL's function that says so, where drivers tell the error by it: they may not go by a
    /// message, which could be in any language.
    pub routine: Option<&'static str>,
    /// The reason is that a row has gone, which may have another key by now.
    pub(crate) is_of_gone_row: bool,
    /// A file of this machine is not what was written to it.
    pub(crate) is_corrupt_file: bool,
    /// An invariant of ours does not hold. Some answers have the same SQLSTATE, as in PostgreSQL.
    pub(crate) is_defect: bool,
    /// What is newer than the snapshot, if that is the reason, and nobody has said yet who has
    /// changed it.
    pub(crate) met: Option<Met>,
}

/// A key that a statement has met, or a whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) tree: TreeId,
    /// `None`: the tree is a table's oid.
    pub(crate) key: Option<Key>,
}

/// An error, warning or notice of the SQL layer. One pointer wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError(Box<ErrorFields>);

/// Result of everything in this crate.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

impl SqlError {
    /// An error with a SQLSTATE (see [`sqlstate`]) and a message.
    #[cold]
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(ErrorFields {
            severity: Severity::Error,
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            schema: None,
            table: None,
            column: None,
            data_type: None,
            constraint: None,
            context: None,
            routine: None,
            is_of_gone_row: false,
            is_corrupt_file: false,
            is_defect: false,
            met: None,
        }))
    }

    /// A NOTICE (SQLSTATE 00000).
    pub fn notice(message: impl Into<String>) -> SqlError {
        SqlError::new(sqlstate::SUCCESSFUL_COMPLETION, message).with_severity(Severity::Notice)
    }

    /// A WARNING.
    pub fn warning(sqlstate: &'static str, message: impl Into<String>) -> SqlError {
        SqlError::new(sqlstate, message).with_severity(Severity::Warning)
    }

    /// 0A000: names what is not supported.
    #[cold]
    pub fn unsupported(what: impl fmt::Display) -> SqlError {
        SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// XX000: an invariant of ours does not hold.
    #[cold]
    pub fn internal(what: impl Into<String>) -> SqlError {
        let mut error = SqlError::new(sqlstate::INTERNAL_ERROR, what);
        error.is_defect = true;
        error
    }

    /// 42601.
    #[cold]
    pub fn syntax(message: impl Into<String>) -> SqlError {
        SqlError::new(sqlstate::SYNTAX_ERROR, message)
    }

    /// 22003 `"<type> out of range"`.
    #[cold]
    pub fn out_of_range(type_name: &str) -> SqlError {
        SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("{type_name} out of range"))
    }

    /// 22P02 `invalid input syntax for type ...`.
    #[cold]
    pub fn invalid_text(type_name: &str, text: &str) -> SqlError {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {type_name}: \"{text}\""),
        )
    }

    /// 40001 for a row that has gone from where it was, to who runs its statement again.
    #[cold]
    pub(crate) fn gone_row() -> SqlError {
        let message = "could not serialize access due to concurrent change of a key";
        let mut error = SqlError::new(sqlstate::SERIALIZATION_FAILURE, message);
        error.is_of_gone_row = true;
        error
    }

    /// XX001 for a file that is not what was written to it. Other nodes have their own.
    #[cold]
    fn corrupt_file(message: String) -> SqlError {
        let mut error = SqlError::new(sqlstate::DATA_CORRUPTED, message).with_hint(RESTORE);
        error.is_corrupt_file = true;
        error
    }

    /// 22012.
    #[cold]
    pub fn division_by_zero() -> SqlError {
        SqlError::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
    }

    /// The same with another severity.
    pub fn with_severity(mut self, severity: Severity) -> SqlError {
        self.severity = severity;
        self
    }

    /// The same with another SQLSTATE.
    pub fn with_sqlstate(mut self, sqlstate: &'static str) -> SqlError {
        self.sqlstate = sqlstate;
        self
    }

    /// The same with a DETAIL.
    pub fn with_detail(mut self, detail: impl Into<String>) -> SqlError {
        self.detail = Some(detail.into());
        self
    }

    /// The same with a HINT.
    pub fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        self.hint = Some(hint.into());
        self
    }

    /// The same with a position (1-based, characters), unless it has one.
    pub fn at(mut self, position: u32) -> SqlError {
        self.position.get_or_insert(position);
        self
    }

    /// The same, naming the table at fault.
    pub fn with_table(mut self, schema: impl Into<String>, table: impl Into<String>) -> SqlError {
        self.schema = Some(schema.into());
        self.table = Some(table.into());
        self
    }

    /// The same, naming the column at fault.
    pub fn with_column(mut self, column: impl Into<String>) -> SqlError {
        self.column = Some(column.into());
        self
    }

    /// Adds schema and name of the data type the error is about.
    #[must_use]
    pub fn with_data_type(mut self, schema: impl Into<String>, name: impl Into<String>) -> SqlError {
        self.schema = Some(schema.into());
        self.data_type = Some(name.into());
        self
    }

    /// The same, naming the constraint at fault.
    pub fn with_constraint(mut self, constraint: impl Into<String>) -> SqlError {
        self.constraint = Some(constraint.into());
        self
    }

    /// The same, told by PostgreSQL's function of this name.
    pub(crate) fn with_routine(mut self, routine: &'static str) -> SqlError {
        self.routine = Some(routine);
        self
    }

    /// The same for what is newer than the snapshot there.
    pub(crate) fn met_at(mut self, tree: TreeId, key: Option<&[u8]>) -> SqlError {
        self.met = Some(Met { tree, key: key.map(Key::copy_from_slice) });
        self
    }

    /// The same with a CONTEXT line.
    pub fn with_context(mut self, context: impl Into<String>) -> SqlError {
        self.context = Some(context.into());
        self
    }
}

impl Deref for SqlError {
    type Target = ErrorFields;
    fn deref(&self) -> &ErrorFields {
        &self.0
    }
}

impl DerefMut for SqlError {
    fn deref_mut(&mut self) -> &mut ErrorFields {
        &mut self.0
    }
}

impl SqlError {
    /// Whether it says what became of other transactions, or of the family that the transaction is
    /// of.
    pub(crate) fn is_of_others(&self) -> bool {
        self.is_retryable() || self.sqlstate.starts_with("MI")
    }

    /// Whether it says nothing of what a text names: the statement is to stop, or something is not
    /// enough.
    pub(crate) fn is_of_circumstances(&self) -> bool {
        ["40", "53", "54", "57", "58"].iter().any(|class| self.sqlstate.starts_with(class))
    }

    /// Whether the same transaction, run again, may well succeed: 40001 and 40P01.
    pub fn is_retryable(&self) -> bool {
        matches!(self.sqlstate, sqlstate::SERIALIZATION_FAILURE | sqlstate::DEADLOCK_DETECTED)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (SQLSTATE {})", self.severity.as_str(), self.message, self.sqlstate)?;
        if let Some(detail) = &self.detail {
            write!(f, "; {detail}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

/// What to do about damage, where nobody else has the data.
pub(crate) const RESTORE: &str = "Restore the data folder from a backup.";

/// A flush that failed says nothing of what it was to make durable: all of it may be in the file.
const MAY_BE_THERE: &str =
    "What was being committed as the log failed may be there then: look before it is done again.";

impl From<cognate_engine::Error> for SqlError {
    /// The one place where the engine's errors get their SQLSTATEs.
    #[cold]
    fn from(error: cognate_engine::Error) -> SqlError {
        use cognate_engine::Error;
        let message = error.to_string();
        match error {
            Error::SerializationFailure { detail, .. } => SqlError::new(
                sqlstate::SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
            )
            .with_detail(detail)
            .with_hint("The transaction might succeed if retried."),
            Error::RequestKnown { position } => SqlError::new(sqlstate::DUPLICATE_OBJECT, message)
                .with_detail(format!("It is at position {position} of the order. Nothing was executed again.")),
            Error::RequestPrepared { position } => prepared(position, message),
            Error::RequestVoid { position } => {
                SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                    .with_detail(format!("Its name was closed at position {position} of the order."))
                    .with_hint("It has not happened. Try it again under another name.")
            }
            Error::NotOrdered => SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message)
                .with_hint("Connect to a node that is with the majority: see cognate_nodes."),
            Error::Overtaken { by, .. } => crate::session::overtaken(by, None, None),
            Error::DependencyCycle { cycle } => crate::session::dependency_failure(format!("{:?}", cycle.edges)),
            Error::Deadlock { detail, .. } => SqlError::new(sqlstate::DEADLOCK_DETECTED, "deadlock detected")
                .with_detail(detail)
                .with_hint("The transaction might succeed if retried."),
            Error::LockNotAvailable => SqlError::new(sqlstate::LOCK_NOT_AVAILABLE, message),
            Error::TransactionTooLarge { limit } => {
                SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "transaction too large")
                    .with_detail(format!(
                        "Its changes and row locks exceed {limit} bytes, which is what a transaction may keep in memory."
                    ))
                    .with_hint(
                        "Split the work into several transactions, or raise the server's memory budget. Tables that the transaction itself created or truncated are not limited.",
                    )
            }
            Error::KeyTooLong { bytes, limit } => too_long(bytes, limit),
            Error::RequestTooLarge { limit } => {
                SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "transaction too large")
                    .with_detail(format!(
                        "With what it has read and locked it exceeds {limit} bytes, which is what a cluster orders of one transaction."
                    ))
                    .with_hint(
                        "Split the work into several transactions. Instead of building an index of a large table, or rewriting it, make a new table, fill it in portions, and rename it.",
                    )
            }
            Error::Corrupt { .. } => SqlError::corrupt_file(message),
            Error::Undecodable { .. } => SqlError::new(sqlstate::DATA_CORRUPTED, message).with_hint(RESTORE),
            Error::LogPoisoned { cause } if matches!(*cause, Error::DiskFull { .. }) => {
                SqlError::new(sqlstate::DISK_FULL, message)
                    .with_hint(format!("Free space, then restart the server. {MAY_BE_THERE}"))
            }
            Error::LogPoisoned { .. } => SqlError::new(sqlstate::IO_ERROR, message)
                .with_hint(format!("Remove the cause, then restart the server. {MAY_BE_THERE}")),
            Error::DiskFull { .. } => SqlError::new(sqlstate::DISK_FULL, message).with_hint("Free space."),
            Error::Io { .. } => SqlError::new(sqlstate::IO_ERROR, message),
            Error::InUse { .. } => SqlError::new(sqlstate::OBJECT_IN_USE, message),
            Error::AlreadyPrepared => SqlError::new(sqlstate::DUPLICATE_OBJECT, message),
            Error::NotPrepared => SqlError::new(sqlstate::UNDEFINED_OBJECT, message),
            Error::CannotPrepare { reason } => {
                SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot prepare the transaction").with_detail(reason)
            }
            Error::Refused(refusal) => refused(&refusal),
            Error::ReadOnly => SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, message),
            Error::ShuttingDown => SqlError::new(sqlstate::ADMIN_SHUTDOWN, message),
            Error::Interrupted { reason } => SqlError::new(sqlstate::QUERY_CANCELED, reason),
            Error::Defect(what) => SqlError::internal(what),
            Error::InvalidArgument(_) => SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message),
        }
    }
}

/// 42710 for the name of a request that is prepared.
#[cold]
fn prepared(position: u64, message: String) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_OBJECT, message)
        .with_detail(format!("It is at position {position} of the order. Nothing was executed again."))
        .with_hint("COMMIT PREPARED or ROLLBACK PREPARED decides it: see pg_prepared_xacts.")
}

#[cold]
fn too_long(bytes: usize, limit: usize) -> SqlError {
    let message = format!("index row size {bytes} exceeds maximum {limit}");
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message)
        .with_hint("Consider an index of an MD5 hash of the value.")
}

/// The SQLSTATE of each refusal of an operation on a family of siblings.
#[cold]
fn refused(refusal: &cognate_engine::sibling::Refusal) -> SqlError {
    use cognate_engine::sibling::Refusal as R;
    let state = match refusal {
        R::XidEmpty => sqlstate::MIP_XID_EMPTY,
        R::XidTooLong { .. } => sqlstate::MIP_XID_TOO_LONG,
        R::XidHasNul => sqlstate::MIP_XID_HAS_NUL,
        R::InstanceNotPositive { .. } => sqlstate::MIP_INSTANCE_NOT_POSITIVE,
        R::InstanceInUse { .. } => sqlstate::MIP_INSTANCE_IN_USE,
        R::InstanceAborted { .. } => sqlstate::MIP_INSTANCE_ABORTED,
        R::InstanceUnknown { .. } => sqlstate::MIP_INSTANCE_UNKNOWN,
        R::InstanceNotPrepared { .. } => sqlstate::MIP_INSTANCE_NOT_PREPARED,
        R::DecidedOtherwise { .. } => sqlstate::MIP_DECIDED_OTHERWISE,
        R::RequestDiffers => sqlstate::MIP_REQUEST_DIFFERS,
        R::RequestTooLarge { .. } => sqlstate::MIP_REQUEST_TOO_LARGE,
        R::ResultTooLarge { .. } => sqlstate::MIP_RESULT_TOO_LARGE,
        R::NotDecided => sqlstate::MIP_NOT_DECIDED,
        R::FamilyUnknown => sqlstate::MIP_FAMILY_UNKNOWN,
        R::Forgotten => sqlstate::MIP_FORGOTTEN,
    };
    let error = SqlError::new(state, refusal.to_string());
    match refusal {
        R::InstanceAborted { highest, .. } | R::InstanceInUse { highest, .. } => error
            .with_detail(format!("The highest instance number heard of is {highest}."))
            .with_hint("Begin an instance with a higher number."),
        R::InstanceNotPrepared { .. } => error.with_hint("PREPARE MIP comes before COMMIT MIP."),
        R::DecidedOtherwise { .. } => error.with_hint("SHOW MIPT has its result."),
        R::RequestDiffers => error.with_hint("An XID stands for one request. Take a fresh one."),
        R::NotDecided => error.with_hint("A family is forgotten after COMMIT MIP."),
        _ => error,
    }
}
