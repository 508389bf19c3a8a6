//! What goes wrong, as user code and clients see it: problem+json (RFC 9457) with a reason that
//! programs can tell apart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::database::{in_words, is_out_of_date};

/// The statuses that a component answers a call with; another one comes from something in between,
/// or from a defect.
pub(crate) const STATUSES: [u16; 9] = [400, 401, 404, 409, 413, 422, 503, 504, 508];

/// A problem. It leaves nothing behind at the component that reports it, but for `unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// For programs: `conflict`, `ancestor`, `closed-sibling`, `running`, `ended`, `failed`,
    /// `arguments`, …
    pub reason: String,
    /// For people.
    pub detail: String,
    /// The root that is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// What the conflict is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Something of the call may be left elsewhere, so its root can only be aborted.
    #[serde(default)]
    pub began: bool,
    /// The call was not even sent.
    #[serde(skip)]
    pub(crate) is_unsent: bool,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(status: u16, reason: &str, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            reason: reason.to_owned(),
            detail: detail.into(),
            holder: None,
            item: None,
            began: false,
            is_unsent: false,
        }
    }

    /// Whether the root may succeed if it is tried again from its beginning.
    pub fn is_transient(&self) -> bool {
        self.reason == "conflict"
    }

    pub(crate) fn began(mut self, began: bool) -> Problem {
        self.began |= began;
        self
    }

    /// The same with a status of the contract. One that a service has made may have any: a refusal
    /// stays one, and everything else would be taken for an answer, or for somebody else's failure.
    fn of_contract(self) -> Problem {
        match self.status {
            status if STATUSES.contains(&status) => self,
            402..=499 => Problem { status: 400, ..self },
            _ => Problem { status: 503, reason: "defect".to_owned(), ..self },
        }
    }

    /// The body of an answer.
    pub(crate) fn body(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.reason, self.detail)
    }
}

/// Why a service does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service refuses: a rule of the application.
    #[error("{0}")]
    Refused(String),
    /// A call failed, or something else that has a reason of its own.
    #[error("{0}")]
    Problem(Problem),
    /// The database's.
    #[error("{0}")]
    Database(#[from] tokio_postgres::Error),
}

impl Error {
    /// The service refuses, in words for a person: the whole root is undone and answers 400
    /// `failed`.
    pub fn refuse(why: impl Into<String>) -> Error {
        Error::Refused(why.into())
    }

    /// Whether running the same local transaction again may help.
    pub(crate) fn is_serialization(&self) -> bool {
        let Error::Database(error) = self else { return false };
        matches!(error.code().map(|code| code.code()), Some("40001" | "40P01")) || is_out_of_date(error)
    }

    /// Whether a statement of ours has failed because of what it found, which it says by a cast of
    /// this text: a service's own SQL, and its triggers, fail with any SQLSTATE, but not so.
    pub(crate) fn is_of_cast(&self, text: &str) -> bool {
        let Error::Database(error) = self else { return false };
        let Some(db) = error.as_db_error() else { return false };
        db.code().code() == "22P02" && db.message().contains(text)
    }

    /// Whether something was to be written in a transaction that was begun as one that only reads.
    pub(crate) fn is_of_reading(&self) -> bool {
        let Error::Database(error) = self else { return false };
        let Some(db) = error.as_db_error() else { return false };
        db.code().code() == "25006" && db.message().contains("in a read-only transaction")
    }

    pub(crate) fn into_problem(self) -> Problem {
        match self {
            Error::Refused(why) => Problem::new(400, "failed", why),
            Error::Problem(problem) => problem.of_contract(),
            Error::Database(ref error) => of_database(error),
        }
    }
}

/// A database's error, by what the caller can do about it.
fn of_database(error: &tokio_postgres::Error) -> Problem {
    let Some(db) = error.as_db_error() else {
        return match is_of_service(error) {
            true => Problem::new(503, "defect", in_words(error)),
            false => {
                let why = format!("the component's database is away: {}", in_words(error));
                Problem::new(503, "database", why)
            }
        };
    };
    let code = db.code().code();
    if is_out_of_date(error) {
        // The connection prepares it anew the next time.
        return Problem::new(409, "conflict", format!("{} (SQLSTATE {code})", db.message()));
    }
    of_code(code, format!("{} (SQLSTATE {code})", db.message()))
}

/// How the driver says that it has refused what a service wants, which it tells from anything else
/// by its words alone.
const OF_SERVICE: [&str; 6] = [
    "error serializing parameter",
    "error deserializing column",
    // A statement with a zero byte, or one that is too long.
    "error encoding message",
    "expected ",
    "invalid column",
    "query returned",
];

/// Whether the driver has refused what a service wants: parameters of other types, or more of them
/// than the statement has; a column that is not there, or is no such value. Trying again changes
/// nothing, so it is not taken for a connection that was lost. What it says of TLS, of passwords
/// and of addresses is of the connection: a person changes that, and then it goes on.
fn is_of_service(error: &tokio_postgres::Error) -> bool {
    let words = error.to_string();
    OF_SERVICE.iter().any(|start| words.starts_with(*start))
}

/// The same by its SQLSTATE.
fn of_code(code: &str, detail: String) -> Problem {
    let is_of = |classes: &[&str]| classes.iter().any(|class| code.starts_with(*class));
    match code {
        "40001" | "40P01" | "55P03" => Problem::new(409, "conflict", detail),
        // The database has a bound of its own for a statement.
        "57014" => Problem::new(504, "deadline", detail),
        // It only reads at present, or has ended a transaction that took longer than it lets one.
        "25006" | "25P03" | "25P04" => Problem::new(503, "database", detail),
        _ if is_of(&["08", "53", "57P", "58"]) => Problem::new(503, "database", detail),
        _ if is_of(&["XX"]) => Problem::new(503, "defect", detail),
        _ => Problem::new(400, "failed", detail),
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        Error::Problem(problem)
    }
}

/// The result of a service.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_a_service_has_a_status_of_the_contract() {
        let of = |status| {
            let problem = Error::from(Problem::new(status, "mine", "")).into_problem();
            (problem.status, problem.reason)
        };
        for status in STATUSES {
            assert_eq!(of(status), (status, "mine".to_owned()));
        }
        for status in [402, 403, 410, 418, 429, 499] {
            assert_eq!(of(status), (400, "mine".to_owned()), "{status}");
        }
        for status in [0, 99, 100, 200, 204, 302, 500, 501, 502, 599, 1000] {
            assert_eq!(of(status), (503, "defect".to_owned()), "{status}");
        }
    }

    #[test]
    fn what_a_database_says_is_told_apart_by_what_can_be_done() {
        let cases: [(&str, u16, &str); 16] = [
            ("40001", 409, "conflict"),
            ("40P01", 409, "conflict"),
            ("55P03", 409, "conflict"),
            ("57014", 504, "deadline"),
            ("25006", 503, "database"),
            ("25P03", 503, "database"),
            ("25P04", 503, "database"),
            ("08006", 503, "database"),
            ("53300", 503, "database"),
            ("57P01", 503, "database"),
            ("58030", 503, "database"),
            ("XX001", 503, "defect"),
            ("22003", 400, "failed"),
            ("22012", 400, "failed"),
            ("23505", 400, "failed"),
            ("25P02", 400, "failed"),
        ];
        for (code, status, reason) in cases {
            let problem = of_code(code, String::new());
            assert_eq!((problem.status, problem.reason.as_str()), (status, reason), "{code}");
        }
    }
}
