//! `cargo xtask regress`: PostgreSQL's own regression scripts, sent to PostgreSQL and to this
//! server, and compared.
//!
//! The scripts are PostgreSQL's and not part of this repository: a folder with `sql/` and `data/`
//! is named on the command line. Each file begins on fresh servers on which `test_setup` has run.
//! Each statement goes to both; where the answers differ, the difference is classed, and it is
//! a *first* one or *follows* from an earlier one (a table that one server could not make). Known
//! differences stand with their reasons in a committed list; the command fails if there is a first
//! one with wrong data, XX000 or a hang that is not listed.
//!
//! ```text
//! script ─▶ statement ─┬─▶ PostgreSQL ─▶ answer ─┐
//!                      └─▶ Cognate ────▶ answer ─┴─▶ compare ─▶ class ─▶ follows? excused? ─▶ table, list
//! ```

mod compare;
mod excused;
mod files;
mod follow;
mod report;
mod run;
mod script;
mod server;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use excused::Excused;
use server::Kind;

/// Where the known differences stand.
const EXCUSED: &str = "docs/regress-excused.txt";
/// Seconds that a statement may take.
const SECONDS: u64 = 10;

/// The arguments.
struct Plan {
    /// PostgreSQL's `src/test/regress`.
    folder: PathBuf,
    postgres: Kind,
    cognate: Kind,
    timeout: Duration,
    /// Every difference is written there.
    details: Option<PathBuf>,
    names: Vec<String>,
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let plan = plan(root, arguments)?;
    let excused = Excused::read(&root.join(EXCUSED))?;
    let scratch = std::env::temp_dir().join(format!("cognate-regress-{}", std::process::id()));
    let results = run::all(&plan, &scratch);
    drop(std::fs::remove_dir_all(&scratch));
    report::report(&plan, &results?, &excused)
}

fn plan(root: &Path, arguments: &[&str]) -> Result<Plan, String> {
    let (mut folder, mut postgres, mut cognate, mut details) = (None, None, None, None);
    let (mut seconds, mut every, mut names) = (SECONDS, false, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        let mut value = || arguments.next().copied().ok_or(format!("{argument} needs a value"));
        match argument {
            "--files" => folder = Some(PathBuf::from(value()?)),
            "--postgres" => postgres = Some(Kind::parse(value()?, Kind::Postgres)),
            "--server" => cognate = Some(Kind::parse(value()?, Kind::Cognate)),
            "--details" => details = Some(PathBuf::from(value()?)),
            "--seconds" => seconds = value()?.parse().map_err(|_| "--seconds: not a number")?,
            "--every" => every = true,
            name if name.starts_with('-') => return Err(format!("unknown option {name}")),
            name => names.push(name.to_owned()),
        }
    }
    let cognate = match cognate {
        Some(cognate) => cognate,
        None => {
            super::cargo(root, "server", &["build", "-p", "cognate", "--locked"], &[])?;
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
            Kind::Cognate(target.join("debug/cognate"))
        }
    };
    let folder: PathBuf = folder.ok_or("--files: the folder src/test/regress of PostgreSQL's source")?;
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    if every {
        names = files::every(&folder)?;
    } else if names.is_empty() {
        names = files::TRANSACTIONAL.iter().map(|&name| name.to_owned()).collect();
    }
    let postgres = postgres.ok_or("--postgres: the folder of PostgreSQL's programs, or HOST:PORT")?;
    Ok(Plan { folder, postgres, cognate, timeout: Duration::from_secs(seconds), details, names })
}
