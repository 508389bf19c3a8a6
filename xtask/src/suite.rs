//! The binaries of all tests of the workspace, built by cargo and started by the gate, which can
//! run several of them beside each other: `cargo test` runs one after the other.
//!
//! A binary is started as cargo starts it: in its package's folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::step;

/// A binary of tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Its package's folder.
    folder: PathBuf,
    /// `lib`, `bin` or `test`.
    kind: String,
    target: String,
    executable: PathBuf,
}

/// Builds all of them, with these features.
///
/// # Errors
/// They do not build, or cargo names none.
pub(crate) fn build(root: &Path, features: &str) -> Result<Vec<Binary>, String> {
    println!("== tests are built");
    let begin = Instant::now();
    let format = "--message-format=json-render-diagnostics";
    let words = ["test", "--workspace", "--locked", "--no-run", "--features", features, format];
    let mut cargo = step::command(root, &words, &[]);
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err("tests do not build".to_owned());
    }
    println!("== tests are built: {} s", begin.elapsed().as_secs());
    let messages = String::from_utf8_lossy(&output.stdout);
    let binaries: Vec<Binary> = messages.lines().filter_map(Binary::told).collect();
    if binaries.is_empty() { Err("cargo names no tests".to_owned()) } else { Ok(binaries) }
}

impl Binary {
    /// What a message of cargo's tells of a binary of tests. `None`: it is about something else.
    fn told(message: &str) -> Option<Binary> {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        if !is_test || message["reason"].as_str() != Some("compiler-artifact") {
            return None;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Binary {
            folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf(),
            kind: text(&message["target"]["kind"][0])?,
            target: text(&message["target"]["name"])?,
            executable: text(&message["executable"])?.into(),
        })
    }

    /// The package's folder, the kind and the target: `sql test main`.
    pub(crate) fn name(&self) -> String {
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{package} {} {}", self.kind, self.target.replace('-', "_"))
    }

    /// What starts it, with these words for its tests' harness.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(words).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_of_tests_are_told_from_all_else_that_was_built() {
        let built = r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/sql/Cargo.toml",
            "target":{"kind":["test"],"name":"main"},"profile":{"test":true},"executable":"/x/t/main-1"}"#;
        let binary = Binary::told(built).unwrap();
        assert_eq!(binary.name(), "sql test main");
        assert_eq!(binary.folder, Path::new("/x/crates/sql"));
        assert_eq!(binary.executable, Path::new("/x/t/main-1"));
        for other in [
            "text",
            r#"{"reason":"build-finished","success":true}"#,
            &built.replace(r#""test":true"#, r#""test":false"#),
            &built.replace(r#""/x/t/main-1""#, "null"),
        ] {
            assert_eq!(Binary::told(other), None, "{other}");
        }
    }
}
