//! The shape of the house, checked.
//!
//! - **Direction.** Which crate may use which is read from the Cargo files and compared with
//!   [`ALLOWED`]. Heavy or far-reaching dependencies have one home each ([`HOMES`]).
//! - **Size, with a ratchet.** A file has at most [`FILE_LINES`] lines before its tests, a function
//!   at most [`FUNCTION_LINES`]. What cannot be shortened at once stands in `tidy-ratchet.toml`
//!   with its length: it may shrink, not grow, and an entry that is not needed must go, with the
//!   last one the file.
//! - **Synchronization.** The engine takes mutexes, atomics and threads from its `sync` module,
//!   which alone can put a scheduler in their place ([`UNSCHEDULED`]).
//! - **Claims.** What ARCHITECTURE.md says of one commit path, one parser, the engine's floors and
//!   clock, and unused dependencies ([`claims`]); and that what it names is there ([`paths`]).
//! - **Features.** The binary and the benchmarks are built of the same crates ([`features`]).
//! - **Prose.** Each module of more than 40 lines opens with `//!`, and the lines of comments are
//!   not too long to read ([`comments`]).
//!
//! Lengths are counted on the text, so code is expected to be formatted.

mod claims;
mod comments;
mod features;
mod paths;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines a file may have before its `#[cfg(test)]` module.
const FILE_LINES: usize = 600;
/// Lines a function may have, first to closing brace.
const FUNCTION_LINES: usize = 70;
/// Where the exceptions stand.
const RATCHET: &str = "tidy-ratchet.toml";

/// Crate, and the crates of ours that it may use outside tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("cognate-env", &[]),
    ("cognate-client-protocol", &[]),
    ("cognate-client", &["cognate-client-protocol"]),
    ("cognate-engine", &["cognate-env"]),
    ("cognate-syntax", &[]),
    ("cognate-sql", &["cognate-syntax", "cognate-engine", "cognate-env"]),
    ("cognate-replication", &["cognate-engine", "cognate-env"]),
    ("cognate-server", &["cognate-sql", "cognate-replication", "cognate-engine", "cognate-env"]),
    ("cognate-composite-protocol", &[]),
    (
        "cognate-composite",
        &[
            "cognate-composite-protocol",
            "cognate-client-protocol",
            "cognate-server",
            "cognate-engine",
            "cognate-env",
        ],
    ),
    ("cognate", &["cognate-server", "cognate-sql", "cognate-engine", "cognate-env"]),
    ("cognate-harness", &["cognate", "cognate-composite", "cognate-engine", "cognate-env"]),
    ("xtask", &[]),
];

/// Outside dependency, and the only crates that may name it.
const HOMES: &[(&str, &[&str])] = &[
    ("sqlparser", &["cognate-syntax", "cognate-sql"]),
    ("openraft", &["cognate-replication"]),
    ("tokio-rustls", &["cognate", "cognate-server", "cognate-composite", "cognate-replication"]),
];

/// The engine's source, where these stand in `sync` only.
const SCHEDULED: &str = "crates/engine/src/";
/// What the scheduler of the tests would not see.
const UNSCHEDULED: &[&str] = &[
    "parking_lot::",
    "arc_swap::",
    "std::sync::atomic",
    "std::sync::{atomic",
    "std::thread",
    "sync::Mutex;",
];
/// Which only ask the machine.
const QUESTIONS: &[&str] = &["std::thread::available_parallelism"];

/// Checks everything; the error lists every finding, one a line.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut findings = Vec::new();
    direction(root, &mut findings)?;
    orphans(root, &mut findings)?;
    features::compare(root, &mut findings)?;
    paths::check(root, &mut findings)?;
    let exports = claims::Exports::read(root)?;
    let ratchet = Ratchet::read(root)?;
    let mut seen = BTreeMap::new();
    for file in rust_files(root)? {
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).map_err(|error| format!("{name}: {error}"))?;
        inspect(&name, &text, &mut findings, &mut seen);
        comments::inspect(&name, &text, &mut findings);
        if !is_test(&name) {
            claims::floors(&name, &body(&text), &exports, &mut findings);
        }
    }
    ratchet.compare(&seen, &mut findings);
    if findings.is_empty() { Ok(()) } else { Err(format!("tidy:\n  {}", findings.join("\n  "))) }
}

fn direction(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    for manifest in manifests(root)? {
        let text =
            fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        let table: toml::Table = text.parse().map_err(|error| format!("{}: {error}", manifest.display()))?;
        let Some(name) = table.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str()) else {
            continue;
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(krate, _)| *krate == name) else {
            findings.push(format!(
                "{name}: a crate that tidy does not know; add it to ALLOWED with what it may use"
            ));
            continue;
        };
        unused(&manifest, name, &table, findings)?;
        let Some(dependencies) = table.get("dependencies").and_then(|d| d.as_table()) else { continue };
        for dependency in dependencies.keys() {
            let ours = dependency == "cognate" || dependency.starts_with("cognate-");
            if ours && !allowed.contains(&dependency.as_str()) {
                findings.push(format!("{name} uses {dependency}: against the direction of the house"));
            }
            if let Some((_, homes)) = HOMES.iter().find(|(krate, _)| krate == dependency)
                && !homes.contains(&name)
            {
                findings.push(format!("{name} uses {dependency}, whose home is {}", homes.join(", ")));
            }
        }
    }
    Ok(())
}

/// Dependencies that nothing names: of one crate, by its sources.
fn unused(
    manifest: &Path,
    name: &str,
    table: &toml::Table,
    findings: &mut Vec<String>,
) -> Result<(), String> {
    let folder = manifest.parent().unwrap_or(manifest);
    let mut sources = String::new();
    for file in rust_files_of(vec![folder.to_path_buf()])? {
        sources += &fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    for kind in ["dependencies", "dev-dependencies"] {
        let Some(dependencies) = table.get(kind).and_then(|d| d.as_table()) else { continue };
        let unused = claims::unused(dependencies.keys().map(String::as_str), &sources);
        findings.extend(unused.map(|dependency| format!("{name} does not use {dependency}")));
    }
    Ok(())
}

/// Dependencies of the workspace that no crate has.
fn orphans(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut used = String::new();
    for manifest in manifests(root)? {
        used += &read(&manifest)?;
    }
    let table: toml::Table =
        read(&root.join("Cargo.toml"))?.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let shared = table.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.as_table());
    for dependency in shared.into_iter().flat_map(|shared| shared.keys()) {
        let is_named = |line: &str| {
            line.strip_prefix(dependency.as_str()).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        };
        if !used.lines().any(is_named) {
            findings.push(format!("Cargo.toml: no crate uses {dependency}"));
        }
    }
    Ok(())
}

fn manifests(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![root.join("xtask/Cargo.toml")];
    let crates = root.join("crates");
    for entry in fs::read_dir(&crates).map_err(|error| format!("{}: {error}", crates.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path().join("Cargo.toml");
        if path.exists() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    rust_files_of(vec![root.join("crates"), root.join("fuzz"), root.join("xtask")])
}

fn rust_files_of(mut folders: Vec<PathBuf>) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("tests.rs") || name.contains("/examples/")
}

/// A file's lines before its module of tests. That one of its modules is in another file, or
/// another word, is for tests only, ends nothing.
fn body(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_end = |pair: &[&str]| {
        let module = pair[1].trim_start_matches("pub(crate) ");
        pair[0] == "#[cfg(test)]" && module.starts_with("mod ") && module.ends_with('{')
    };
    let end = lines.windows(2).position(is_end).unwrap_or(lines.len());
    lines[..end].to_vec()
}

/// Measures one file: findings that no ratchet excuses go to `findings`, lengths beyond the limits
/// to `seen`.
fn inspect(name: &str, text: &str, findings: &mut Vec<String>, seen: &mut BTreeMap<String, usize>) {
    if is_test(name) {
        return;
    }
    let body = body(text);
    if body.len() > FILE_LINES {
        seen.insert(name.to_owned(), body.len());
    }
    if body.len() > 40 && !text.trim_start().starts_with("//!") {
        findings.push(format!("{name}: no prose at its head (//!)"));
    }
    if name.starts_with(SCHEDULED)
        && !["sync/", "schedules/"].iter().any(|room| name[SCHEDULED.len()..].starts_with(room))
    {
        let loose = |line: &&&str| {
            let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
            !line.contains("crate::sync") && has(UNSCHEDULED) && !has(QUESTIONS)
        };
        findings.extend(
            body.iter().filter(loose).map(|line| format!("{name}: not by way of `sync`: {}", line.trim())),
        );
    }
    claims::inspect(name, &body, findings);
    let mut open: Option<(usize, String, String)> = None;
    for (number, line) in body.iter().enumerate() {
        if let Some((indent, function)) = function_head(line) {
            open = Some((number, indent, function));
        } else if let Some((begin, indent, function)) = &open
            && *line == format!("{indent}}}")
        {
            let length = number - begin + 1;
            if length > FUNCTION_LINES {
                seen.insert(format!("{name}:{function}"), length);
            }
            open = None;
        }
    }
}

/// The indentation and name of the function that `line` begins, if it begins one.
fn function_head(line: &str) -> Option<(String, String)> {
    let trimmed = line.trim_start();
    let indent = line[..line.len() - trimmed.len()].to_owned();
    let mut rest = trimmed;
    loop {
        let next = ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe "]
            .iter()
            .find_map(|word| rest.strip_prefix(word));
        match next {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    let name: String =
        rest.strip_prefix("fn ")?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some((indent, name))
}

/// Lengths that are excused today.
struct Ratchet {
    excused: BTreeMap<String, usize>,
}

impl Ratchet {
    fn read(root: &Path) -> Result<Self, String> {
        let path = root.join(RATCHET);
        let mut excused = BTreeMap::new();
        if path.exists() {
            let text = fs::read_to_string(&path).map_err(|error| format!("{RATCHET}: {error}"))?;
            let table: toml::Table = text.parse().map_err(|error| format!("{RATCHET}: {error}"))?;
            for (place, length) in table {
                let length = length
                    .as_integer()
                    .and_then(|n| usize::try_from(n).ok())
                    .ok_or_else(|| format!("{RATCHET}: {place}: not a length"))?;
                excused.insert(place, length);
            }
        }
        Ok(Self { excused })
    }

    fn compare(&self, seen: &BTreeMap<String, usize>, findings: &mut Vec<String>) {
        for (place, length) in seen {
            match self.excused.get(place) {
                Some(excused) if length <= excused => {}
                Some(excused) => {
                    findings.push(format!("{place}: {length} lines, and {excused} were excused"))
                }
                None => findings.push(format!("{place}: {length} lines")),
            }
        }
        for place in self.excused.keys() {
            if !seen.contains_key(place) {
                findings.push(format!("{place}: no longer too long; take it out of {RATCHET}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_head_is_recognized_with_its_indentation() {
        assert_eq!(
            function_head("    pub(crate) async fn run_it<T>(x: T) {"),
            Some(("    ".to_owned(), "run_it".to_owned()))
        );
        assert_eq!(function_head("    let fnord = 1;"), None);
    }

    #[test]
    fn long_functions_long_files_and_missing_prose_are_found() {
        let long = format!("fn long() {{\n{}}}\n", "    work();\n".repeat(80));
        let mut findings = Vec::new();
        let mut seen = BTreeMap::new();
        inspect("crates/x/src/a.rs", &long, &mut findings, &mut seen);
        assert_eq!(seen.get("crates/x/src/a.rs:long"), Some(&82));
        assert_eq!(findings.len(), 1, "{findings:?}");
        inspect("crates/x/src/b.rs", &"// line\n".repeat(601), &mut findings, &mut seen);
        assert_eq!(seen.get("crates/x/src/b.rs"), Some(&601));
    }

    #[test]
    fn a_module_of_tests_elsewhere_hides_nothing() {
        let long = format!("#[cfg(test)]\nmod tests;\nfn long() {{\n{}}}\n", "    work();\n".repeat(80));
        let mut seen = BTreeMap::new();
        inspect("crates/x/src/a.rs", &long, &mut Vec::new(), &mut seen);
        assert_eq!(seen.get("crates/x/src/a.rs:long"), Some(&82));
        let tested = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", "    // line\n".repeat(601));
        assert_eq!(body(&tested), ["fn a() {}"]);
    }

    #[test]
    fn synchronization_past_the_scheduler_is_found() {
        let inspected = |name: &str, text: &str| {
            let mut findings = Vec::new();
            inspect(name, text, &mut findings, &mut BTreeMap::new());
            findings.len()
        };
        let loose = "use std::sync::Arc;\nuse std::sync::atomic::AtomicU64;\nuse parking_lot::Mutex;\n";
        assert_eq!(inspected("crates/engine/src/manager.rs", loose), 2);
        assert_eq!(inspected("crates/engine/src/sync/mod.rs", loose), 0);
        assert_eq!(inspected("crates/sql/src/a.rs", loose), 0);
        let kept = "use crate::sync::Mutex;\nuse crate::sync::atomic::AtomicU64;\n";
        assert_eq!(inspected("crates/engine/src/manager.rs", kept), 0);
    }

    #[test]
    fn the_ratchet_lets_lengths_shrink_and_not_grow() {
        let ratchet = Ratchet { excused: BTreeMap::from([("a".to_owned(), 700), ("gone".to_owned(), 650)]) };
        let mut findings = Vec::new();
        ratchet.compare(&BTreeMap::from([("a".to_owned(), 690)]), &mut findings);
        assert_eq!(findings.len(), 1, "the entry that is no longer needed: {findings:?}");
        ratchet.compare(&BTreeMap::from([("a".to_owned(), 701), ("gone".to_owned(), 650)]), &mut findings);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn the_house_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_path_buf();
        if let Err(message) = check(&root) {
            panic!("{message}");
        }
    }
}
