//! `cognate backup`: everything that a running server has, into a folder or a stream; and whether a
//! folder's backup is sound.
//!
//! The server is asked as by any client, with the statement BACKUP. What it sends is a tar archive
//! whose last file is a list with checksums (`cognate_engine::Intake`). Whoever gets it to the end
//! knows that it is whole; a folder is read once more from the disk.
//!
//! ```text
//! --to DIR     DIR/INCOMPLETE, DIR/base/…, DIR/backup.txt, and INCOMPLETE goes; all of it is read
//! --to -       the archive on standard output; the exit status says whether it is whole
//! ```

mod source;
mod tls;

use std::future::poll_fn;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use clap::{Args, Subcommand};
use cognate_engine::{Contents, Intake, verify_backup};
use cognate_env::{Disk, RealDisk};
use futures_util::Stream as _;

use source::Source;

/// Arguments of `cognate backup`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Backup {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    source: Source,
    /// Folder for the backup, made if missing; or `-`: a tar archive on standard output.
    #[arg(long, value_name = "DIR", required = true)]
    to: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum Other {
    /// Read a backup in a folder, and check every byte of it.
    Verify {
        /// Folder of the backup.
        folder: PathBuf,
    },
}

impl Backup {
    /// Does it.
    pub(crate) fn run(&self) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        if let Some(Other::Verify { folder }) = &self.other {
            let contents = verify_backup(&disk, folder).map_err(|e| e.to_string())?;
            println!("sound: {}", describe(&contents));
            return Ok(());
        }
        let to = self.to.as_deref().ok_or("to: where to?")?;
        if is_stream(to) && std::io::stdout().is_terminal() {
            return Err("to: a terminal takes no archive; redirect standard output, or name a folder".into());
        }
        if !is_stream(to) {
            refuse_occupied(to)?;
        }
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(|e| format!("cannot start the runtime: {e}"))?;
        let contents = runtime.block_on(self.take(&disk, to))?;
        if is_stream(to) {
            // Standard output is the archive's.
            eprintln!("backup of {}", describe(&contents));
        } else {
            verify_backup(&disk, to).map_err(|e| format!("the backup was read back: {e}"))?;
            println!("backup of {}, read back: {}", describe(&contents), to.display());
        }
        Ok(())
    }

    async fn take(&self, disk: &Arc<dyn Disk>, to: &Path) -> Result<Contents, String> {
        let client = self.source.connect().await?;
        let stream = client.copy_out("BACKUP").await.map_err(|e| source::describe(&e))?;
        let mut stream = pin!(stream);
        // Not before the server gives one: a refusal leaves nothing behind.
        let mut target = match is_stream(to) {
            true => Target { intake: Intake::looking(), is_stream: true },
            false => {
                let intake = Intake::begin(Arc::clone(disk), to).map_err(|e| e.to_string())?;
                Target { intake, is_stream: false }
            }
        };
        while let Some(bytes) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
            let bytes = bytes.map_err(|e| format!("the backup is incomplete: {}", source::describe(&e)))?;
            target.put(bytes).map_err(|e| format!("the backup is incomplete: {e}"))?;
        }
        target.finish().map_err(|e| format!("the backup is incomplete: {e}"))
    }
}

/// Where a backup goes.
struct Target {
    intake: Intake,
    is_stream: bool,
}

impl Target {
    fn put(&mut self, bytes: Bytes) -> Result<(), String> {
        if self.is_stream {
            std::io::stdout().write_all(&bytes).map_err(|e| format!("standard output: {e}"))?;
        }
        self.intake.put(bytes).map_err(|e| e.to_string())
    }

    fn finish(self) -> Result<Contents, String> {
        if self.is_stream {
            std::io::stdout().flush().map_err(|e| format!("standard output: {e}"))?;
        }
        self.intake.finish().map_err(|e| e.to_string())
    }
}

/// Whether standard input or output is meant.
pub(crate) fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// What is in a backup, in words.
pub(crate) fn describe(contents: &Contents) -> String {
    let Contents { commit, time, is_node, files } = contents;
    let of = if *is_node { "position" } else { "commit" };
    format!("{of} {commit} ({time}), {} bytes in {} files", contents.bytes(), files.len())
}

/// Refuses a folder that has anything in it.
pub(crate) fn refuse_occupied(folder: &Path) -> Result<(), String> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(format!("{}: the folder is not empty", folder.display())),
            None => Ok(()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(format!("{}: {e}", folder.display())),
    }
}
