//! The users that other systems' servers run as when the harness is root: they refuse to be root's.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, IoContext, Result};

/// A user by numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// This user when the harness runs as root, nobody else otherwise. The package makes the user.
    pub(super) fn find(system: &str, user: &str, package: &str) -> Result<Option<Owner>> {
        let me = std::fs::metadata("/proc/self").doing("asking who runs the harness")?.uid();
        if me != 0 {
            return Ok(None);
        }
        let users = std::fs::read_to_string("/etc/passwd").doing("reading /etc/passwd")?;
        let found = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != user {
                return None;
            }
            Some(Owner { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        });
        found.map(Some).ok_or_else(|| {
            Error::Missing(format!(
                "{system} does not run as root and there is no user {user} to run it as; \
                 run the harness as another user, or install Debian's {package}, which makes that user"
            ))
        })
    }

    /// Makes a file or folder this user's.
    pub(super) fn give(self, path: &Path) -> Result<()> {
        chown(path, Some(self.uid), Some(self.gid)).doing(format!("handing {} over", path.display()))
    }
}

/// Lets a program run as that user, in a process group of its own: a Ctrl-C at the terminal reaches
/// the harness alone, which then stops the server.
pub(super) fn own(command: &mut Command, owner: Option<Owner>) {
    command.process_group(0);
    if let Some(owner) = owner {
        command.uid(owner.uid).gid(owner.gid);
    }
}
