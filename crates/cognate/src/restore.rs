//! `cognate restore`: a database of a backup, in a folder of its own.
//!
//! Everything is taken in beside, verified byte by byte, opened once there, and read back; only
//! then it is moved to where it opens (`cognate_engine::Restoration`). Whatever goes wrong before
//! leaves a folder that no server opens.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use cognate_engine::{Backup, Database, Options, Restoration, Restored};
use cognate_env::{Disk, RealDisk};
use cognate_sql::session::SqlDatabase;

use crate::backup::{describe, is_stream, refuse_occupied};

/// Bytes that are moved at once.
const PORTION: usize = 1 << 20;

/// Arguments of `cognate restore`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Restore {
    /// Folder of the backup; or `-`: its tar archive on standard input.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Folder for the database, made if missing. There must be nothing in it.
    #[arg(long, value_name = "DIR", env = "COGNATE_DATA", default_value = "cognate-data")]
    data: PathBuf,
    /// Do not open the database to read every table and every index. Every byte's checksum is
    /// verified all the same.
    #[arg(long)]
    no_read_back: bool,
}

impl Restore {
    /// Does it.
    pub(crate) fn run(&self) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        refuse_occupied(&self.data)?;
        let restored = match is_stream(&self.from) {
            true => from_input(&disk, &self.data),
            false => from_folder(&disk, &self.from, &self.data),
        }
        .map_err(|e| format!("nothing was restored: {e}"))?;
        let read = match self.no_read_back {
            true => String::new(),
            false => format!("; {}", read_back(&restored).map_err(|e| format!("nothing was restored: {e}"))?),
        };
        let beside = restored.folder();
        let contents = restored.finish().map_err(|e| format!("nothing was restored: {e}"))?;
        // Nothing but empty folders.
        let _ = std::fs::remove_dir_all(beside);
        println!("restored {}{read}: {}", describe(&contents), self.data.display());
        Ok(())
    }
}

fn from_folder(disk: &Arc<dyn Disk>, folder: &Path, data: &Path) -> Result<Restored, String> {
    // Verified before anything is begun.
    let mut backup = Backup::of_folder(disk, folder).map_err(|e| e.to_string())?;
    let mut restoration = Restoration::begin(Arc::clone(disk), data).map_err(|e| e.to_string())?;
    while let Some(bytes) = backup.next(PORTION).map_err(|e| e.to_string())? {
        restoration.put(bytes).map_err(|e| e.to_string())?;
    }
    restoration.verify().map_err(|e| e.to_string())
}

fn from_input(disk: &Arc<dyn Disk>, data: &Path) -> Result<Restored, String> {
    let mut restoration = Restoration::begin(Arc::clone(disk), data).map_err(|e| e.to_string())?;
    let mut input = std::io::stdin().lock();
    let mut portion = vec![0; PORTION];
    loop {
        let count = match input.read(&mut portion) {
            Ok(count) => count,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(format!("standard input: {e}")),
        };
        if count == 0 {
            return restoration.verify().map_err(|e| e.to_string());
        }
        restoration.put(Bytes::copy_from_slice(&portion[..count])).map_err(|e| e.to_string())?;
    }
}

/// Opens it and reads everything; says what there was.
fn read_back(restored: &Restored) -> Result<String, String> {
    let engine = Database::open(Options::new(restored.folder())).map_err(|e| e.to_string())?;
    let database = SqlDatabase::open(engine.clone()).map_err(|e| e.to_string())?;
    let read = database.read_back().map_err(|e| e.to_string())?;
    let prepared = engine.prepared().len();
    drop(database);
    engine.close().map_err(|e| e.to_string())?;
    let rows = format!("read back {} rows of {} tables", read.rows, read.tables);
    let entries = format!("{} entries of {} indexes", read.entries, read.indexes);
    Ok(format!("{rows} and {entries}, {prepared} transactions are prepared"))
}
