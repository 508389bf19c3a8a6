//! The database and the tools around it are built of the same crates with the same features, so who
//! builds a tool after the database builds the tool's own crates.
//!
//! Cargo asks for the sum of the features that a build's crates want. A tool that wants one more of
//! a crate far below builds everything above that crate again: one feature of `syn` was enough for
//! nearly all of it. `crates/cognate/Cargo.toml` names what the tools want besides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A crate and its version, and the sets of features it is built with.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Compares the features of a build of the binary and of a build of the benchmarks.
pub(super) fn compare(root: &Path, findings: &mut Vec<String>) -> Result<(), String> {
    findings.extend(differences(&tree(root, "cognate")?, &tree(root, "cognate-harness")?));
    Ok(())
}

fn tree(root: &Path, package: &str) -> Result<Features, String> {
    let asked = ["tree", "-p", package, "-e", "normal,build", "--prefix", "none", "-f", "{p}\t{f}"];
    let output = Command::new("cargo").args(asked).current_dir(root).output();
    let output = output.map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(text: &str) -> Features {
    let mut all = Features::new();
    for (name, features) in text.lines().filter_map(|line| line.split_once('\t')) {
        let features = features.trim_end_matches(" (*)").trim();
        all.entry(name.to_owned()).or_default().insert(features.to_owned());
    }
    all
}

fn differences(one: &Features, other: &Features) -> Vec<String> {
    let told = |sets: &BTreeSet<String>| sets.iter().cloned().collect::<Vec<_>>().join(" | ");
    one.iter()
        .filter_map(|(name, features)| Some((name, features, other.get(name)?)))
        .filter(|(_, features, others)| features != others)
        .map(|(name, features, others)| {
            let (features, others) = (told(features), told(others));
            format!("{name} is built twice: cognate has [{features}], cognate-harness [{others}]")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_of_one_build_alone_is_found() {
        let one = read("a v1.0.0\tstd\nb v1.0.0\t\na v1.0.0\tstd (*)\nc v2.0.0\tx");
        let other = read("a v1.0.0\talloc,std\nb v1.0.0\t\nd v1.0.0\t");
        assert_eq!(
            differences(&one, &other),
            ["a v1.0.0 is built twice: cognate has [std], cognate-harness [alloc,std]"]
        );
        assert_eq!(differences(&one, &one), [""; 0]);
    }
}
