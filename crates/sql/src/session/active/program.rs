//! A program as it goes to all nodes: statements with their parameters, and what they may depend on
//! besides the database.

use serde::{Deserialize, Serialize};

use crate::catalog::{DATABASE_OID, Oid};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::OutputColumn;
use crate::session::portal::changed_result;
use crate::session::settings::Settings;

/// In which version a program is written.
const VERSION: u8 = 1;

/// The rules of what is fit to be a program, as they are now. A program that was ordered under
/// earlier ones is executed under those, also by a start with a later build: what other nodes have
/// made of it, or this one before, stays so.
///
/// | rules | refuse in addition |
/// |---|---|
/// | 1 | functions whose last digit is up to the node |
pub(super) const RULES: u32 = 1;

/// Settings that say how texts become values and names become tables, and whether anybody looks at
/// foreign keys.
const SETTINGS: [&str; 9] = [
    "search_path",
    "TimeZone",
    "DateStyle",
    "IntervalStyle",
    "extra_float_digits",
    "bytea_output",
    "client_min_messages",
    "session_replication_role",
    QUOTE_ALL,
];

/// Says how names become texts. It is named only if it is on, which is seldom.
const QUOTE_ALL: &str = "quote_all_identifiers";

/// What they are in a session.
pub(super) fn settings(session: &Settings) -> Vec<(String, String)> {
    let shown = SETTINGS.iter().filter_map(|name| Some((*name, session.show(name).ok()?)));
    let shown = shown.filter(|(name, value)| *name != QUOTE_ALL || value == "on");
    shown.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// One statement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) text: String,
    /// Oids of the parameters' types.
    pub(super) types: Vec<u32>,
    /// Their values as texts; nothing is NULL.
    pub(super) parameters: Vec<Option<String>>,
    /// Oids of the types of its columns, if the client was told of them: by then they may be
    /// others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) told: Option<Vec<u32>>,
}

impl Step {
    /// Of columns, what a client is told and reads their values by.
    pub(super) fn types_of(columns: &[OutputColumn]) -> Vec<u32> {
        columns.iter().map(|column| column.ty.oid()).collect()
    }

    /// 0A000 if its client was told of other columns.
    pub(super) fn check_told(&self, columns: Option<&[OutputColumn]>) -> Result<()> {
        match &self.told {
            Some(told) if *told != Step::types_of(columns.unwrap_or_default()) => Err(changed_result()),
            _ => Ok(()),
        }
    }
}

/// See the module's prose.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) user: String,
    /// Which role that is, if it is one: by its turn it may be called otherwise.
    #[serde(default)]
    pub(super) role: Option<Oid>,
    /// `session_user`, and the role that this is, if the session acts as another one (SET ROLE).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<(String, Option<Oid>)>,
    pub(super) database: String,
    #[serde(default = "initial")]
    pub(super) database_oid: Oid,
    pub(super) settings: Vec<(String, String)>,
    /// Microseconds since 2000-01-01 UTC.
    pub(super) now: i64,
    pub(super) seed: u64,
    /// Bytes that a statement may hold, and all answers together; what the node allows if there is
    /// none.
    #[serde(default)]
    pub(super) memory: Option<u64>,
    /// Bytes that it may write; the same.
    #[serde(default)]
    pub(super) writes_max: Option<u64>,
    /// How many steps it may take; any number if there is none.
    #[serde(default)]
    pub(super) steps_max: Option<u64>,
    /// Under which rules it was found fit.
    #[serde(default)]
    pub(super) rules: u32,
}

fn initial() -> Oid {
    DATABASE_OID
}

impl Program {
    /// Its bytes: the version, and JSON.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![VERSION];
        serde_json::to_writer(&mut bytes, self).map_err(|error| unreadable(&error.to_string()))?;
        Ok(bytes)
    }

    /// XX001 if they are none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Program> {
        match bytes.split_first() {
            Some((&VERSION, json)) => {
                serde_json::from_slice(json).map_err(|error| unreadable(&error.to_string()))
            }
            Some((version, _)) => Err(unreadable(&format!("it is in the unknown version {version}"))),
            None => Err(unreadable("it is empty")),
        }
    }
}

fn unreadable(why: &str) -> SqlError {
    SqlError::new(sqlstate::DATA_CORRUPTED, "a program in the order of all nodes cannot be read")
        .with_detail(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_back_as_it_was() {
        let program = Program {
            steps: vec![Step {
                text: "INSERT INTO t VALUES ($1, $2)".into(),
                types: vec![23, 25],
                parameters: vec![Some("1".into()), None],
                told: Some(vec![20, 16384]),
            }],
            user: "u".into(),
            role: Some(16390),
            session: Some(("s".into(), Some(16391))),
            database: "d".into(),
            database_oid: 16384,
            settings: vec![("TimeZone".into(), "Asia/Tokyo".into())],
            now: -5,
            seed: u64::MAX,
            memory: Some(1 << 20),
            writes_max: Some(9),
            steps_max: Some(7),
            rules: 3,
        };
        let bytes = program.encode().unwrap();
        assert_eq!(format!("{:?}", Program::decode(&bytes).unwrap()), format!("{program:?}"));
        let older = String::from_utf8(bytes.clone()).unwrap().replace("\"role\":16390,", "");
        let older = older.replace(",\"memory\":1048576,\"writes_max\":9,\"steps_max\":7,\"rules\":3", "");
        let older = Program::decode(older.as_bytes()).unwrap();
        assert_eq!((older.role, older.memory, older.writes_max, older.steps_max), (None, None, None, None));
        assert_eq!(older.rules, 0);
        for wrong in [&[][..], &[9], &bytes[..bytes.len() - 1]] {
            assert_eq!(Program::decode(wrong).unwrap_err().sqlstate, sqlstate::DATA_CORRUPTED);
        }
    }
}
