//! What ARCHITECTURE.md claims of the house, where the text of the sources can say whether it
//! holds.
//!
//! - *No second path.* Some words may stand in one room only ([`CLAIMS`]): whoever writes them
//!   elsewhere has built a second commit path, or a second parser, or reads a clock that no test
//!   can move.
//! - *Nothing calls upward.* The engine's rooms have floors ([`FLOORS`]): a file imports from its
//!   own floor and from lower ones. A room is a file or a folder; the longest entry that fits
//!   counts, so that a file can lie higher than its folder. What a `mod.rs` shows the world of its
//!   own folder (`pub use`) is no import; what `lib.rs` shows is one from where it lies. Two names
//!   are free: the error, which knows all that can go wrong, and, where transactions are carried,
//!   the database, to which those rooms add what they can do.
//! - *Nothing unused.* Each dependency in a Cargo file is named in the sources of its crate, and
//!   each of the workspace's in some Cargo file ([`unused`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A word, where it is looked for, and the only places that may have it.
struct Claim {
    word: &'static str,
    within: &'static str,
    homes: &'static [&'static str],
    claim: &'static str,
}

const ENGINE: &str = "crates/engine/src/";

const CLAIMS: &[Claim] = &[
    Claim {
        word: "log.queue(",
        within: ENGINE,
        // The schedules of the log alone are the log's own tests.
        homes: &["crates/engine/src/sequencer/", "crates/engine/src/schedules/log.rs"],
        claim: "only the sequencer numbers records",
    },
    Claim { word: "log.append(", within: ENGINE, homes: &[], claim: "only the sequencer numbers records" },
    Claim {
        word: "memory.install(",
        within: ENGINE,
        homes: &["crates/engine/src/sequencer/"],
        claim: "only the sequencer installs versions",
    },
    Claim {
        word: "store.show(",
        within: ENGINE,
        homes: &["crates/engine/src/sequencer/", "crates/engine/src/late.rs"],
        claim: "only the sequencer moves the visible mark, or the release thread for it",
    },
    Claim { word: "Instant::now", within: ENGINE, homes: &[], claim: "the engine asks `env` for the time" },
    Claim { word: "SystemTime", within: ENGINE, homes: &[], claim: "the engine asks `env` for the time" },
    Claim {
        word: "sqlparser::parser",
        within: "crates/",
        homes: &["crates/sql/src/parse/"],
        claim: "there is one parser",
    },
    Claim {
        word: "openraft::",
        within: "crates/",
        homes: &["crates/replication/src/consensus/"],
        claim: "the consensus library is known in one room",
    },
];

/// Rooms of the engine, the lowest floor first.
const FLOORS: &[&[&str]] = &[
    // What all speak of, and what they synchronize with.
    &["sync", "key", "level", "lent", "rest", "spare", "hash", "total_order", "planted"],
    // One thing each.
    &["own", "rows", "temporary", "storage", "governor", "lock", "payload", "txn", "reads", "fate"],
    &["memory", "view", "sight", "certifier", "sibling", "pressure", "options", "active", "damage", "error"],
    &["prepared/record"],
    &["recovery", "order"],
    // What is committed, and how it comes to be.
    &["store"],
    &["late", "scan", "divided"],
    &["durable", "read_view"],
    &["sequencer", "tracked"],
    // Who carries transactions: the manager, the transactions, and their ends of several kinds.
    &[
        "manager",
        "transaction",
        "notes",
        "refresh",
        "savepoint",
        "prepared",
        "sibling/operations",
        "sibling/member",
        "sibling/ordered",
        "restoration",
        "delivery",
        "sealing",
        "ahead",
        "image",
        "exported",
        "locking",
        "turns",
        "proposed",
        "void",
    ],
    // What looks after the database, and what no transaction needs.
    &["upkeep", "checkpoint", "backup", "snapshot_ids"],
    &["background"],
    &["database", "statistics"],
];

/// Looks at one file's lines before its tests.
pub(super) fn inspect(name: &str, body: &[&str], findings: &mut Vec<String>) {
    // A long expression has its calls on lines of their own.
    let code = body.iter().map(|line| line.trim()).filter(|line| !line.starts_with("//"));
    let joined: String = code.collect();
    for claim in CLAIMS.iter().filter(|claim| name.starts_with(claim.within)) {
        if claim.homes.iter().any(|home| name.starts_with(home)) {
            continue;
        }
        let before = findings.len();
        let broken = body.iter().filter(|line| line.contains(claim.word));
        findings.extend(broken.map(|line| format!("{name}: {}: {}", claim.claim, line.trim())));
        if findings.len() == before && joined.contains(claim.word) {
            findings.push(format!("{name}: {}: {} over several lines", claim.claim, claim.word));
        }
    }
}

/// What the engine shows to other crates, with the path that it has in the engine.
pub(super) struct Exports(BTreeMap<String, String>);

impl Exports {
    /// As the engine says.
    pub(super) fn read(root: &Path) -> Result<Exports, String> {
        let name = format!("{ENGINE}lib.rs");
        fs::read_to_string(root.join(&name))
            .map(|text| Exports::of(&text))
            .map_err(|error| format!("{name}: {error}"))
    }

    fn of(text: &str) -> Exports {
        let mut paths = Vec::new();
        for (at, word) in text.match_indices("pub use ") {
            expand("", &text[at + word.len()..], &mut paths);
        }
        let named = |path: String| path.rsplit_once('/').map(|(_, name)| (name.to_owned(), path.clone()));
        Exports(paths.into_iter().filter_map(named).collect())
    }
}

/// The paths that a name, or several in braces, stand for. The answer is what comes behind them.
fn expand<'t>(prefix: &str, text: &'t str, found: &mut Vec<String>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(prefix, rest, found);
            // Behind a name may be another one for it.
            rest = rest.find([',', '}']).map_or("", |at| &rest[at..]);
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
    match rest.strip_prefix("::") {
        Some(rest) => expand(&path, rest, found),
        None => {
            found.push(path);
            rest
        }
    }
}

/// The room that a path of modules, or of a file, is in, and its floor.
fn room(path: &str) -> Option<(&'static str, usize)> {
    let all =
        FLOORS.iter().enumerate().flat_map(|(floor, rooms)| rooms.iter().map(move |room| (*room, floor)));
    let fits = |(room, _): &(&str, usize)| {
        path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    all.filter(fits).max_by_key(|(room, _)| room.len())
}

/// Looks whether one file of the engine imports from above.
pub(super) fn floors(name: &str, body: &[&str], exports: &Exports, findings: &mut Vec<String>) {
    let Some(file) = name.strip_prefix(ENGINE) else { return };
    // They open the house, or look at it from outside.
    if file == "lib.rs" || file.starts_with("schedules/") {
        return;
    }
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let Some((own, floor)) = room(path) else {
        findings.push(format!("{name}: a room without a floor; add it to FLOORS"));
        return;
    };
    let code: Vec<&str> = body.iter().copied().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut imported = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        expand("", &code[at + word.len()..], &mut imported);
    }
    imported.sort_unstable();
    imported.dedup();
    let carries = room("manager").is_some_and(|(_, carriers)| floor >= carriers);
    for path in &imported {
        let first = path.split('/').next().unwrap_or(path);
        let is_handle = matches!(path.as_str(), "Database" | "database/Database");
        if first == "Error" || (is_handle && carries) {
            continue;
        }
        let real = exports.0.get(first).unwrap_or(path);
        if let Some((other, above)) = room(real).filter(|(_, other)| *other > floor) {
            let how = format!("{own} is on floor {floor}, {other} on floor {above}");
            findings.push(format!("{name}: upward: {how}: crate/{path}"));
        }
    }
}

/// Dependencies of a manifest that none of the crate's sources names.
pub(super) fn unused<'a>(
    dependencies: impl Iterator<Item = &'a str>,
    sources: &str,
) -> impl Iterator<Item = &'a str> {
    dependencies.filter(move |dependency| {
        let name = dependency.replace('-', "_");
        let uses = [format!("{name}::"), format!("use {name}"), format!("extern crate {name}")];
        !uses.iter().any(|using| sources.contains(using.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let body: Vec<&str> = text.lines().collect();
        inspect(name, &body, &mut findings);
        let exports = Exports::of("pub use database::Database;\npub use txn::{bulk::GoOn, id::Numbers};\n");
        floors(name, &body, &exports, &mut findings);
        findings
    }

    #[test]
    fn a_second_commit_path_is_found() {
        let line = "        let csn = self.store.log.queue(&[&payload])?;\n";
        assert_eq!(found("crates/engine/src/prepared/decision.rs", line).len(), 1);
        assert!(found("crates/engine/src/sequencer/mod.rs", line).is_empty());
        let split = "        self.store\n            .log\n            .queue(&[&payload])?;\n";
        assert_eq!(found("crates/engine/src/prepared/decision.rs", split).len(), 1);
        assert_eq!(found("crates/sql/src/oltp/run.rs", "use sqlparser::parser::Parser;\n").len(), 1);
    }

    #[test]
    fn a_clock_of_its_own_is_found_in_the_engine() {
        let line = "        let begin = std::time::Instant::now();\n";
        assert_eq!(found("crates/engine/src/governor/mod.rs", line).len(), 1);
        assert!(found("crates/sql/src/session/mod.rs", line).is_empty());
    }

    #[test]
    fn an_import_from_above_is_found() {
        let upward = "use crate::manager::Manager;\n";
        assert_eq!(found("crates/engine/src/store.rs", upward).len(), 1);
        assert!(found("crates/engine/src/manager.rs", "use crate::store::Store;\n").is_empty());
        assert_eq!(found("crates/engine/src/novelty.rs", "").len(), 1, "every room has a floor");
        let grouped = "use crate::{\n    Csn,\n    manager::{self as m, Manager},\n    store::Store,\n};\n";
        assert_eq!(found("crates/engine/src/scan.rs", grouped).len(), 2, "both names from above");
        assert!(found("crates/engine/src/background.rs", grouped).is_empty());
    }

    #[test]
    fn what_the_engine_shows_to_others_is_imported_from_where_it_lies() {
        let shown = "use crate::{Database, Error, GoOn};\n";
        assert_eq!(found("crates/engine/src/lock/advisory.rs", shown).len(), 1, "the database");
        assert!(found("crates/engine/src/locking.rs", shown).is_empty());
        assert_eq!(found("crates/engine/src/hash.rs", shown).len(), 2, "the load's, too");
    }

    #[test]
    fn a_dependency_that_nothing_names_is_found() {
        let sources = "use once_used::Thing;\nlet x = other_one::make();\n";
        let unused: Vec<&str> = unused(["once-used", "other-one", "idle"].into_iter(), sources).collect();
        assert_eq!(unused, ["idle"]);
    }
}
