//! A backup: the base store as it was at one moment, as a stream of files.
//!
//! The stream is a tar archive, so that other programs can look into it; unpacked, it is a folder:
//!
//! ```text
//! base/0000000000000007.run      the runs of the base store
//! base/MANIFEST                  which of them count, and up to which commit
//! images/….image                 of a node of a cluster: how things stood at that position
//! backup.txt                     last: which commit and when, and each file's length and checksum
//! ```
//!
//! # Invariants
//!
//! 1. *One moment.* Runs never change, and whoever holds a [`Backup`] keeps their files. So the
//!    state is chosen at the beginning, and what is committed, merged or dropped meanwhile changes
//!    nothing of it.
//! 2. *Every byte is checked.* The list at the end has a checksum for each file and one for itself;
//!    headers have the sum that tar gives them; what fills up is zero. Runs, manifest and image
//!    have checksums of their own besides. The server looks at those of runs while it sends
//!    (`storage::checking`), and [`verify`] reads all of them: they tell where damage is, and that
//!    the server read what it once wrote.
//! 3. *Complete or not one.* The list comes last, and a folder has a file `INCOMPLETE` until
//!    everything is flushed. A stream without its end and a folder without its list are refused.
//!
//! # A worked example
//!
//! ```text
//! server                                      client
//! checkpoint to commit 120; runs 3 and 5
//! base/…5.run, base/…3.run          ───────▶  INCOMPLETE, base/…5.run, base/…3.run
//! commit 121; runs 3 and 5 become run 6
//!   (their files stay: they are held)
//! base/MANIFEST, backup.txt, end    ───────▶  base/MANIFEST; the sums agree: backup.txt,
//! the files of runs 3 and 5 go                and INCOMPLETE goes
//! ```
//!
//! `crate::backup` chooses the moment, `crate::restoration` makes a database of what came.

pub(crate) mod archive;
pub(crate) mod contents;
pub(crate) mod folder;
pub(crate) mod intake;
pub(crate) mod stream;

pub use contents::{Contents, FileSum};
pub use folder::verify;
pub use intake::Intake;
pub use stream::Backup;

use super::images;
use super::manifest::MANIFEST;
use super::run::parse_run_file_name;

/// The list of what is in a backup.
pub(crate) const LIST: &str = "backup.txt";
/// As long as it is there, the folder is no backup yet.
pub(crate) const INCOMPLETE: &str = "INCOMPLETE";

/// As long as it is there, a data folder is being restored and does not open.
pub(crate) const RESTORING: &str = "RESTORING";

/// Whether a backup may have a file of this name, with its folder.
pub(crate) fn is_known(name: &str) -> bool {
    match name.split_once('/') {
        Some(("base", file)) => file == MANIFEST || parse_run_file_name(file).is_some(),
        Some(("images", file)) => images::parse_file_name(file).is_some(),
        _ => false,
    }
}
