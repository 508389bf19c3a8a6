//! Whoever walks through ARCHITECTURE.md finds what it names: each path in it is there.
//!
//! A path is a word in backquotes with a slash in it, or with the ending of a file. It is looked
//! for at the root, and below `crates/`; a name alone also where the path before it was found, and
//! in the folders around that, or in the sources of the crate that was named before.

use std::path::{Path, PathBuf};

/// The map of the house.
const MAP: &str = "ARCHITECTURE.md";
/// What the names of our crates begin with.
const CRATE: &str = "cognate-";
/// What ends the name of a file.
const ENDINGS: &[&str] = &[".rs", ".md", ".html", ".toml"];

/// Looks for all that the map names.
pub(super) fn check(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join(MAP)).map_err(|error| format!("{MAP}: {error}"))?;
    let missing = missing(&text, |path| root.join(path).exists(), |path| root.join(path).is_dir());
    findings.extend(missing.into_iter().map(|path| format!("{MAP}: there is no {path} where it is named")));
    Ok(())
}

/// The paths of a text that are not there.
fn missing(text: &str, exists: impl Fn(&Path) -> bool, is_folder: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut last: Option<PathBuf> = None;
    let mut missing = Vec::new();
    for name in names(text) {
        if let Some(krate) = name.strip_prefix(CRATE) {
            let sources = Path::new("crates").join(krate).join("src");
            last = if is_folder(&sources) { Some(sources) } else { last };
            continue;
        }
        let mut places = vec![PathBuf::from(name), Path::new("crates").join(name)];
        if let Some(last) = &last {
            let folders = last.ancestors().skip(usize::from(!is_folder(last)));
            let within = folders.take_while(|folder| folder.components().count() > 1);
            places.extend(within.map(|folder| folder.join(name)));
        }
        match places.into_iter().find(|place| exists(place)) {
            Some(place) => last = Some(place),
            None => missing.push(name.to_owned()),
        }
    }
    missing
}

/// The words in backquotes that are paths; drawings have none.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_drawn = false;
    let prose = text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_drawn ^= is_fence;
        !is_drawn && !is_fence
    });
    let quoted = prose.flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|word| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
        let is_path = word.contains('/') || ENDINGS.iter().any(|ending| word.ends_with(ending));
        (is_path || word.starts_with(CRATE)) && word.chars().all(is_plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_and_not_there_is_found() {
        let there = ["crates/sql/src/parse/mod.rs", "crates/sql/src/row.rs", "docs/sql.md"];
        let folders = ["crates/sql/src", "crates/sql/src/parse", "docs"];
        let is_folder = |path: &Path| folders.iter().any(|folder| Path::new(folder) == path);
        let exists = |path: &Path| is_folder(path) || there.iter().any(|file| Path::new(file) == path);
        let found = |text: &str| missing(text, exists, is_folder);
        assert!(found("see `sql/src/parse/`, `mod.rs` and `row.rs`, `SELECT`, `docs/sql.md`").is_empty());
        assert_eq!(found("`row.rs` before its room"), ["row.rs"]);
        assert_eq!(found("`sql/src/parse/`, then `gone.rs`\n```\n`drawn.rs`\n```"), ["gone.rs"]);
        assert_eq!(found("`docs/sql.md`, then `row.rs`"), ["row.rs"], "it is not beside that");
        assert!(found("`docs/sql.md`, `cognate-sql` with `row.rs`, `cognate-bench`").is_empty());
    }
}
