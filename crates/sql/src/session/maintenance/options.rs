//! Options of VACUUM, ANALYZE, CLUSTER and REINDEX. What most of them tune is automatic here: they
//! are checked, and have no effect.

use crate::error::{Result, SqlError, sqlstate};

/// The highest number of workers.
const WORKERS_MAX: i64 = 1024;

/// Those that decide what a command does, or whether it may.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MaintenanceOptions {
    /// Statistics of columns are to be gathered.
    pub(super) analyze: bool,
    /// The command is a transaction of its own.
    pub(super) concurrently: bool,
    full: bool,
    reads_all_pages: bool,
    leaves_toast: bool,
    workers: i64,
}

impl MaintenanceOptions {
    /// Options with their values; the last of a name counts. 42601 for one that the command does
    /// not have, or that has no such value.
    pub(super) fn read(command: &str, options: &[(String, Option<String>)]) -> Result<MaintenanceOptions> {
        let known = known(command);
        let mut read = MaintenanceOptions { analyze: command == "ANALYZE", ..MaintenanceOptions::default() };
        for (name, value) in options {
            let (name, value) = (name.as_str(), value.as_deref());
            if !known.contains(&name) {
                return Err(SqlError::syntax(format!("unrecognized {command} option \"{name}\"")));
            }
            match name {
                "tablespace" => {}
                "index_cleanup" if value.is_some_and(|value| value.eq_ignore_ascii_case("auto")) => {}
                "parallel" => read.workers = workers(value)?,
                "analyze" | "analyse" => read.analyze = is_on(name, value)?,
                "concurrently" => read.concurrently = is_on(name, value)?,
                "full" => read.full = is_on(name, value)?,
                "disable_page_skipping" => read.reads_all_pages = is_on(name, value)?,
                "process_toast" => read.leaves_toast = !is_on(name, value)?,
                _ => {
                    is_on(name, value)?;
                }
            }
        }
        Ok(read)
    }

    /// 0A000 for what VACUUM refuses within a transaction, too. `lists_columns`: columns of a
    /// relation are named.
    pub(super) fn check_request(&self, lists_columns: bool) -> Result<()> {
        if self.full && self.workers > 0 {
            return refused("VACUUM FULL cannot be performed in parallel");
        }
        if lists_columns && !self.analyze {
            return refused("ANALYZE option must be specified when a column list is provided");
        }
        Ok(())
    }

    /// 0A000 for options that FULL has no use for.
    pub(super) fn check_full(&self) -> Result<()> {
        if self.full && self.reads_all_pages {
            return refused("VACUUM option DISABLE_PAGE_SKIPPING cannot be used with FULL");
        }
        if self.full && self.leaves_toast {
            return refused("PROCESS_TOAST required with VACUUM FULL");
        }
        Ok(())
    }
}

fn refused(message: &str) -> Result<()> {
    Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
}

fn known(command: &str) -> &'static [&'static str] {
    match command {
        "VACUUM" => &[
            "full",
            "freeze",
            "verbose",
            "analyze",
            "analyse",
            "disable_page_skipping",
            "skip_locked",
            "index_cleanup",
            "process_toast",
            "truncate",
            "parallel",
        ],
        "ANALYZE" => &["verbose", "skip_locked"],
        "REINDEX" => &["verbose", "concurrently", "tablespace"],
        _ => &["verbose"],
    }
}

/// Whether an option is on, as it is without a value. 42601 if that is none of a Boolean's.
fn is_on(name: &str, value: Option<&str>) -> Result<bool> {
    let Some(value) = value else { return Ok(true) };
    let is_any = |words: [&str; 3]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    if is_any(["true", "on", "1"]) {
        return Ok(true);
    }
    if is_any(["false", "off", "0"]) {
        return Ok(false);
    }
    Err(SqlError::syntax(format!("{name} requires a Boolean value")))
}

/// The value of PARALLEL. 42601.
fn workers(value: Option<&str>) -> Result<i64> {
    let Some(value) = value else {
        let message = format!("parallel option requires a value between 0 and {WORKERS_MAX}");
        return Err(SqlError::syntax(message));
    };
    match value.parse::<i64>() {
        Ok(workers) if (0..=WORKERS_MAX).contains(&workers) => Ok(workers),
        Ok(_) => {
            let message = format!("parallel workers for vacuum must be between 0 and {WORKERS_MAX}");
            Err(SqlError::syntax(message))
        }
        Err(_) => Err(SqlError::syntax("parallel requires an integer value")),
    }
}
