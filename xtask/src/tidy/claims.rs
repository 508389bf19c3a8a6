//! What ARCHITECTURE.md claims of the house, where the text of the sources can say whether it
//! holds.
//!
//! - *No second path.* Some words may stand in one room only ([`CLAIMS`]): whoever writes them
//!   elsewhere has built a second commit path, or a second parser, or reads a clock that no test
//!   can move.
//! - *Nothing calls upward.* The engine's rooms have floors ([`FLOORS`]): a file imports from its
//!   own floor and from lower ones. A room is a file or a folder; the longest entry that fits
//!   counts, so that a file can lie higher than its folder. What a `mod.rs` shows the world of its
//!   own folder (`pub use`) is no import.
//! - *Nothing unused.* Each dependency in a Cargo file is named in the sources of its crate, and
//!   each of the workspace's in some Cargo file ([`unused`]).

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
    &["recovery", "statistics", "order"],
    // What is committed, and how it comes to be.
    &["store"],
    &["late", "scan"],
    &["durable", "read_view"],
    &["sequencer", "tracked"],
    // Who carries transactions: the manager, the transactions, and their ends of several kinds.
    &[
        "manager",
        "transaction",
        "notes",
        "refresh",
        "prepared",
        "sibling/operations",
        "sibling/member",
        "sibling/ordered",
        "checkpoint",
        "backup",
        "restoration",
        "delivery",
        "image",
        "exported",
        "locking",
        "turns",
        "proposed",
        "snapshot_ids",
    ],
    &["background"],
    &["database"],
];

/// Looks at one file's lines before its tests.
pub(super) fn inspect(name: &str, body: &[&str], findings: &mut Vec<String>) {
    for claim in CLAIMS.iter().filter(|claim| name.starts_with(claim.within)) {
        if claim.homes.iter().any(|home| name.starts_with(home)) {
            continue;
        }
        let broken = body.iter().filter(|line| line.contains(claim.word));
        findings.extend(broken.map(|line| format!("{name}: {}: {}", claim.claim, line.trim())));
    }
    if let Some(path) = name.strip_prefix(ENGINE) {
        floors(path, body, findings);
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

fn floors(file: &str, body: &[&str], findings: &mut Vec<String>) {
    // They open the house, or look at it from outside.
    if file == "lib.rs" || file.starts_with("schedules/") {
        return;
    }
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let Some((own, floor)) = room(path) else {
        findings.push(format!("{ENGINE}{file}: a room without a floor; add it to FLOORS"));
        return;
    };
    for line in body.iter().filter(|line| !line.trim_start().starts_with("//")) {
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let names = rest.chars().take_while(|c| c.is_ascii_lowercase() || matches!(c, '_' | ':'));
            let imported = names.collect::<String>().replace("::", "/");
            let imported = imported.trim_end_matches('/');
            if let Some((other, above)) = room(imported).filter(|(_, other)| *other > floor) {
                let how = format!("{own} is on floor {floor}, {other} on floor {above}");
                findings.push(format!("{ENGINE}{file}: upward: {how}: {}", line.trim()));
            }
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
        inspect(name, &text.lines().collect::<Vec<_>>(), &mut findings);
        findings
    }

    #[test]
    fn a_second_commit_path_is_found() {
        let line = "        let csn = self.store.log.queue(&[&payload])?;\n";
        assert_eq!(found("crates/engine/src/prepared/decision.rs", line).len(), 1);
        assert!(found("crates/engine/src/sequencer/mod.rs", line).is_empty());
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
    }

    #[test]
    fn a_dependency_that_nothing_names_is_found() {
        let sources = "use once_used::Thing;\nlet x = other_one::make();\n";
        let unused: Vec<&str> = unused(["once-used", "other-one", "idle"].into_iter(), sources).collect();
        assert_eq!(unused, ["idle"]);
    }
}
