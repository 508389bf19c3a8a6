//! A folder that one process of a component has to itself, and how a later one comes by it.
//!
//! The lock of a folder is the operating system's: it ends with its process, and nobody can take it
//! away. So a later process of the same component asks for it, by a file beside the lock. The
//! earlier one looks for that file; it is fenced by it as by a later generation in the database,
//! and ends. The later one tries until it has the lock, and goes on as after a crash.
//!
//! Invariants:
//! - Nobody opens a journal or an embedded database of which another process has the lock. A claim
//!   takes nothing by itself.
//! - A claim is of one component. That two of them were given one folder is a mistake, and ends
//!   neither: the later one is refused.
//! - Who has the lock removes the claim before he begins; who still waits writes it again. So of
//!   several later processes the last one stays, and what one that was killed has left behind ends
//!   at most the process that it asked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, Instant};

use cognate_engine::is_open;
use cognate_env::{Disk, Lock, RealDisk};
use tokio::time::sleep;

use crate::node::Node;

/// How long a process is waited for that has been asked to end. It answers `fenced` for a while
/// (`LAST_WORDS` of the example are three seconds), and its disk may be slow.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the lock of an embedded database is waited for behind the folder's own: the system lets
/// go of a process's locks one after another, and who has been killed may have much to close.
const LAST_LOCK: Duration = Duration::from_secs(5);
/// How often the lock is tried, and looked for a claim.
const LOOK: Duration = Duration::from_millis(100);

const LOCK: &str = "composite-lock";
const CLAIM: &str = "composite-claim";

/// The lock of a folder, of one component.
pub(crate) struct Hold {
    component: String,
    claim: PathBuf,
    _lock: Box<dyn Lock>,
}

impl Hold {
    /// Takes a folder, which is made if it is not there, from an earlier process of the component
    /// if there is one.
    ///
    /// # Errors
    /// Another component has it, or the earlier process does not end; the folder cannot be made or
    /// written.
    pub(crate) async fn take(component: &str, folder: &Path) -> Result<Hold, String> {
        let words = |error: io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(words)?;
        let (path, claim) = (folder.join(LOCK), folder.join(CLAIM));
        let (begun, mut has_asked) = (Instant::now(), false);
        loop {
            match RealDisk.lock(&path) {
                Ok(lock) => {
                    std::fs::write(&path, component).map_err(words)?;
                    withdraw(&claim).map_err(words)?;
                    return Ok(Hold { component: component.to_owned(), claim, _lock: lock });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(words(error)),
            }
            // Until the owner has written his name there is none.
            let owner = std::fs::read_to_string(&path).map_err(words)?;
            if !owner.is_empty() && owner != component {
                return Err(format!("{}: component {owner} has this folder", folder.display()));
            }
            if begun.elapsed() > PATIENCE {
                withdraw(&claim).map_err(words)?;
                return Err(format!(
                    "{}: another process of the component has this folder, and has not ended within {PATIENCE:?}",
                    folder.display()
                ));
            }
            if !has_asked {
                tracing::warn!(
                    "{}: another process of {component} has this folder; it is to end",
                    folder.display()
                );
                has_asked = true;
            }
            std::fs::write(&claim, component).map_err(words)?;
            sleep(LOOK).await;
        }
    }

    /// Takes the folder of an embedded database in the same way, and waits a little for the
    /// database's own lock. Somebody else who has the database open is waited for no longer:
    /// opening it says that it is in use.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn take_database(component: &str, folder: &Path) -> Result<Hold, String> {
        let hold = Hold::take(component, folder).await?;
        let begun = Instant::now();
        while is_open(&RealDisk, folder).map_err(|error| error.to_string())? && begun.elapsed() < LAST_LOCK {
            sleep(LOOK).await;
        }
        Ok(hold)
    }

    /// Whether a later process of the component waits for the folder.
    fn is_claimed(&self) -> bool {
        std::fs::read_to_string(&self.claim).is_ok_and(|by| by == self.component)
    }
}

fn withdraw(claim: &Path) -> io::Result<()> {
    match std::fs::remove_file(claim) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Keeps these as long as there is a node, which is fenced once one of them is claimed.
pub(crate) fn keep(holds: Vec<Hold>, node: Weak<Node>) {
    tokio::spawn(async move {
        while let Some(node) = node.upgrade() {
            if holds.iter().any(Hold::is_claimed) {
                node.fence();
            }
            drop(node);
            sleep(LOOK).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_claim_is_seen_by_its_component_only_and_gone_with_the_next_owner() {
        let folder = tempfile::tempdir().unwrap();
        let first = Hold::take("stock", folder.path()).await.unwrap();
        assert!(!first.is_claimed());
        let refused = Hold::take("shop", folder.path()).await.map(drop).unwrap_err();
        assert!(refused.ends_with("component stock has this folder"), "{refused}");
        assert!(!first.is_claimed());
        let its = folder.path().to_owned();
        let second = tokio::spawn(async move { Hold::take("stock", &its).await });
        while !first.is_claimed() {
            tokio::task::yield_now().await;
        }
        assert!(!second.is_finished(), "it is still the first one's");
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(!second.is_claimed());
    }

    #[tokio::test]
    async fn what_one_that_was_killed_has_asked_for_ends_nobody_that_comes_after() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CLAIM), "stock").unwrap();
        let hold = Hold::take("stock", folder.path()).await.unwrap();
        assert!(!hold.is_claimed());
    }

    #[tokio::test]
    async fn a_database_is_taken_once_its_own_lock_has_ended_too() {
        let folder = tempfile::tempdir().unwrap();
        let database = RealDisk.lock(&folder.path().join("lock")).unwrap();
        let its = folder.path().to_owned();
        let taking = tokio::spawn(async move { Hold::take_database("stock", &its).await });
        while !std::fs::read_to_string(folder.path().join(LOCK)).is_ok_and(|owner| owner == "stock") {
            tokio::task::yield_now().await;
        }
        assert!(is_open(&RealDisk, folder.path()).unwrap() && !taking.is_finished());
        drop(database);
        taking.await.unwrap().unwrap();
        assert!(!is_open(&RealDisk, folder.path()).unwrap());
    }
}
