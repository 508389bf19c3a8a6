//! A backup in a folder: whether it is complete, and as it was taken.

use std::path::Path;
use std::sync::Arc;

use cognate_env::{Disk, OpenMode};

use super::contents::{Contents, FileSum};
use super::{INCOMPLETE, LIST, RESTORING};
use crate::Error;
use crate::storage::images;
use crate::storage::manifest::{MANIFEST, Manifest};
use crate::storage::run::{Run, RunName, run_file_name};

/// Read at once.
const PORTION: usize = 1 << 20;

/// Reads a backup's folder and checks every byte of it: against the list, and against the checksums
/// that its files had before.
///
/// # Errors
/// `InvalidArgument` if it is no complete backup; `Corrupt` naming the file, and where that can be
/// told the offset; `Io`.
pub fn verify(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Contents, Error> {
    let list = folder.join(LIST);
    let exists = |path: &Path| disk.exists(path).map_err(|cause| Error::io("looking for", path, cause));
    if exists(&folder.join(INCOMPLETE))? {
        let what = format!("{}: this backup was not completed; take another one", folder.display());
        return Err(Error::InvalidArgument(what));
    }
    if !exists(&list)? {
        let what = format!("{}: there is no {LIST}, so this is no complete backup", folder.display());
        return Err(Error::InvalidArgument(what));
    }
    let text = read(disk.as_ref(), &list)?;
    let contents = Contents::decode(&text).map_err(|what| Error::corrupt(&list, 0, what))?;
    verify_store(disk, folder, &contents)?;
    for file in &contents.files {
        verify_file(disk.as_ref(), &folder.join(&file.name), file)?;
    }
    Ok(contents)
}

/// The checksums that the files had before, and whether they are a whole base store.
fn verify_store(disk: &Arc<dyn Disk>, folder: &Path, contents: &Contents) -> Result<(), Error> {
    let base = folder.join("base");
    let manifest = Manifest::load(disk.as_ref(), &base)?;
    let path = base.join(MANIFEST);
    let manifest = manifest.ok_or_else(|| Error::corrupt(&path, 0, "the file is missing"))?;
    if manifest.watermark != contents.commit {
        let what = format!("it is of commit {}, the list of {}", manifest.watermark, contents.commit);
        return Err(Error::corrupt(&path, 0, what));
    }
    let named = |name: String| contents.files.iter().any(|file| file.name == name);
    let missing = |name: &str| Error::corrupt(&folder.join(LIST), 0, format!("{name} is not listed"));
    for run in manifest.runs.iter().chain(&manifest.staged) {
        let RunName { number, .. } = *run;
        if !named(format!("base/{}", run_file_name(number))) {
            return Err(missing(&run_file_name(number)));
        }
        Run::open(disk, &base, *run, 0)?.verify()?;
    }
    if !contents.is_node || contents.commit == 0 {
        return Ok(());
    }
    let name = images::file_name(contents.commit);
    if !named(format!("images/{name}")) {
        return Err(missing(&name));
    }
    let path = folder.join("images").join(name);
    let image = read(disk.as_ref(), &path)?;
    match images::decode(&image) {
        Ok((position, _)) if position == contents.commit => Ok(()),
        Ok((position, _)) => Err(Error::corrupt(&path, 12, format!("image of position {position}"))),
        Err((offset, what)) => Err(Error::corrupt(&path, offset, what)),
    }
}

fn verify_file(disk: &dyn Disk, path: &Path, expected: &FileSum) -> Result<(), Error> {
    let fail = |cause| Error::io("reading", path, cause);
    let file = disk.open(path, OpenMode::Read).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound => Error::corrupt(path, 0, "the file is missing"),
        _ => fail(cause),
    })?;
    let length = file.len().map_err(fail)?;
    if length != expected.length {
        let what = format!("the file has {length} bytes, expected {}", expected.length);
        return Err(Error::corrupt(path, length.min(expected.length), what));
    }
    let mut bytes = vec![0; PORTION.min(length as usize)];
    let (mut offset, mut crc) = (0, 0);
    while offset < length {
        let count = (length - offset).min(PORTION as u64) as usize;
        file.read_exact_at(&mut bytes[..count], offset).map_err(fail)?;
        crc = crc32c::crc32c_append(crc, &bytes[..count]);
        offset += count as u64;
    }
    match crc == expected.crc {
        true => Ok(()),
        false => Err(Error::corrupt(path, 0, format!("checksum {crc:08x}, expected {:08x}", expected.crc))),
    }
}

/// Refuses a data folder in which a restore has not come to its end.
///
/// # Errors
/// `InvalidArgument`, `Io`.
pub(crate) fn refuse_unfinished(disk: &dyn Disk, data: &Path) -> Result<(), Error> {
    let begun = data.join(RESTORING);
    if !disk.exists(&begun).map_err(|cause| Error::io("looking for", &begun, cause))? {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "{}: a restore has not come to its end here; remove what is in the folder, and restore again",
        data.display()
    )))
}

/// All bytes of a small file.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |cause| Error::io("reading", path, cause);
    let file = disk.open(path, OpenMode::Read).map_err(fail)?;
    let mut bytes = vec![0; file.len().map_err(fail)? as usize];
    file.read_exact_at(&mut bytes, 0).map_err(fail)?;
    Ok(bytes)
}
