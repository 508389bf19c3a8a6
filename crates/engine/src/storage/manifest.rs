//! The manifest: the one small file that says what the base store consists of. The byte map is in
//! `docs/log-format.md`.
//!
//! It is replaced as a whole: written beside, flushed, renamed, folder flushed.

use std::path::Path;

use cognate_env::{Disk, OpenMode};

use super::record::{u32_at, u64_at};
use super::run::{RunName, parse_run_file_name};
use crate::{Csn, Error, TreeId};

/// Name of the manifest.
pub const MANIFEST: &str = "MANIFEST";

/// Name of a manifest being written.
pub const MANIFEST_NEW: &str = "MANIFEST.new";

const MAGIC: &[u8; 8] = b"COGNMAN1";
const VERSION: u32 = 1;
const HEADER: usize = 16;

/// What the base store consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Grows by one with each manifest written.
    pub generation: u64,
    /// All commits up to this one are in the runs, or will never be needed.
    pub watermark: Csn,
    /// The next run's number.
    pub next_run: u64,
    /// The runs that are read, newest first.
    pub runs: Vec<RunName>,
    /// Bulk loads that no commit has attached yet.
    pub staged: Vec<RunName>,
    /// Trees whose entries are as good as absent, ascending.
    pub dropped: Vec<TreeId>,
}

impl Manifest {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for number in [self.generation, self.watermark, self.next_run] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        for runs in [&self.runs, &self.staged] {
            body.extend_from_slice(&(runs.len() as u32).to_le_bytes());
            for run in runs {
                body.extend_from_slice(&run.number.to_le_bytes());
                body.extend_from_slice(&run.length.to_le_bytes());
            }
        }
        body.extend_from_slice(&(self.dropped.len() as u32).to_le_bytes());
        for tree in &self.dropped {
            body.extend_from_slice(&tree.to_le_bytes());
        }
        let mut bytes = Vec::with_capacity(HEADER + body.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&body);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a whole file; the error says where and what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, (u64, String)> {
        if bytes.len() < HEADER + 4 || &bytes[..8] != MAGIC {
            return Err((0, "not a manifest".into()));
        }
        let end = bytes.len() - 4;
        let (stored, computed) = (u32_at(bytes, end), crc32c::crc32c(&bytes[..end]));
        if stored != computed {
            return Err((0, format!("manifest has checksum {computed:08x}, expected {stored:08x}")));
        }
        if u32_at(bytes, 8) != VERSION {
            return Err((8, format!("manifest version {} is not supported", u32_at(bytes, 8))));
        }
        if u32_at(bytes, 12) as usize != end - HEADER {
            return Err((12, "manifest with a wrong length".into()));
        }
        let mut fields = Fields { bytes: &bytes[..end], position: HEADER };
        fields.manifest().ok_or((HEADER as u64, "manifest with an impossible count".into()))
    }

    /// Reads the manifest of `folder`; `None` if there is none.
    pub fn load(disk: &dyn Disk, folder: &Path) -> Result<Option<Manifest>, Error> {
        let path = folder.join(MANIFEST);
        let fail = |cause| Error::io("reading", &path, cause);
        let file = match disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(fail(cause)),
        };
        let mut bytes = vec![0; file.len().map_err(fail)? as usize];
        file.read_exact_at(&mut bytes, 0).map_err(fail)?;
        Manifest::decode(&bytes).map(Some).map_err(|(offset, what)| Error::corrupt(&path, offset, what))
    }

    /// Writes and flushes the new manifest beside the old one. After an error the old one is still
    /// in force.
    pub fn prepare(&self, disk: &dyn Disk, folder: &Path) -> Result<(), Error> {
        let path = folder.join(MANIFEST_NEW);
        let fail = |cause| Error::io("writing", &path, cause);
        let file = disk.open(&path, OpenMode::Truncate).map_err(fail)?;
        file.write_all_at(&self.encode(), 0).map_err(fail)?;
        file.sync_data().map_err(|cause| Error::io("flushing", &path, cause))
    }

    /// Puts the prepared manifest in force. After an error nobody knows which one is.
    pub fn switch(disk: &dyn Disk, folder: &Path) -> Result<(), Error> {
        let path = folder.join(MANIFEST);
        let renamed = disk.rename(&folder.join(MANIFEST_NEW), &path);
        renamed.map_err(|cause| Error::io("replacing", &path, cause))?;
        disk.sync_dir(folder).map_err(|cause| Error::io("flushing", folder, cause))
    }

    /// Removes runs that a crash left behind, of the files of these names.
    pub fn remove_leftovers(&self, disk: &dyn Disk, folder: &Path, names: &[String]) -> Result<(), Error> {
        let named = |number| self.runs.iter().chain(&self.staged).any(|run| run.number == number);
        for name in names {
            if parse_run_file_name(name).is_some_and(|number| !named(number)) {
                let path = folder.join(name);
                tracing::debug!(file = %path.display(), "remove a run that no manifest names");
                disk.remove(&path).map_err(|cause| Error::io("removing", &path, cause))?;
            }
        }
        Ok(())
    }
}

struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Fields<'_> {
    fn manifest(&mut self) -> Option<Manifest> {
        let (generation, watermark, next_run) = (self.u64()?, self.u64()?, self.u64()?);
        let (runs, staged) = (self.runs()?, self.runs()?);
        let count = self.u32()? as usize;
        let mut dropped = Vec::with_capacity(count.min(self.bytes.len() / 4));
        for _ in 0..count {
            dropped.push(self.u32()?);
        }
        let whole = self.position == self.bytes.len();
        whole.then_some(Manifest { generation, watermark, next_run, runs, staged, dropped })
    }

    fn runs(&mut self) -> Option<Vec<RunName>> {
        let count = self.u32()? as usize;
        let mut runs = Vec::with_capacity(count.min(self.bytes.len() / 16));
        for _ in 0..count {
            runs.push(RunName { number: self.u64()?, length: self.u64()? });
        }
        Some(runs)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes.get(self.position..self.position + 4)?;
        self.position += 4;
        Some(u32_at(bytes, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.position..self.position + 8)?;
        self.position += 8;
        Some(u64_at(bytes, 0))
    }
}
