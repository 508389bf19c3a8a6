//! Images of a node: files beside the base store that say how things stood at a position of the
//! cluster's order (`crate::image` has what is in them). The byte map is in `docs/log-format.md`.
//!
//! Each is written beside, flushed and renamed, so that it is there as a whole or not at all. One
//! counts: that at the base store's watermark. A later one is of a checkpoint that is under way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::{Disk, OpenMode};

use super::record::{u32_at, u64_at};
use crate::sync::Mutex;
use crate::{Csn, Error};

/// The folder of images in a node's.
pub const FOLDER: &str = "images";

const MAGIC: &[u8; 8] = b"COGNIMG1";
const VERSION: u32 = 1;
const HEADER: usize = 28;
const SUFFIX: &str = ".image";
const NEW: &str = "image.new";

/// The images of a node.
#[derive(Debug)]
pub struct Images {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Where there are images.
    positions: Mutex<Vec<Csn>>,
}

/// An image's file name.
pub(crate) fn file_name(position: Csn) -> String {
    format!("{position:020}{SUFFIX}")
}

/// The position in an image's file name; `None` for other files.
pub(super) fn parse_file_name(name: &str) -> Option<Csn> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| digits.parse().ok())?
}

/// The bytes of an image's file.
pub fn encode(position: Csn, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + content.len() + 4);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&position.to_le_bytes());
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(content);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Position and content of a whole file; the error says where and what is wrong.
pub fn decode(bytes: &[u8]) -> Result<(Csn, &[u8]), (u64, String)> {
    if bytes.len() < HEADER + 4 || &bytes[..8] != MAGIC {
        return Err((0, "not an image".into()));
    }
    let end = bytes.len() - 4;
    let (stored, computed) = (u32_at(bytes, end), crc32c::crc32c(&bytes[..end]));
    if stored != computed {
        return Err((0, format!("image has checksum {computed:08x}, expected {stored:08x}")));
    }
    if u32_at(bytes, 8) != VERSION {
        return Err((8, format!("image version {} is not supported", u32_at(bytes, 8))));
    }
    if u64_at(bytes, 20) as usize != end - HEADER {
        return Err((20, "image with a wrong length".into()));
    }
    Ok((u64_at(bytes, 12), &bytes[HEADER..end]))
}

/// The content of a file that was read and is sound.
pub(crate) fn content(file: &[u8]) -> &[u8] {
    &file[HEADER..file.len() - 4]
}

impl Images {
    /// Looks which images there are in `folder`, which is made if it is not there.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<Images, Error> {
        disk.create_dir_all(folder).map_err(|cause| Error::io("creating", folder, cause))?;
        let names = disk.list(folder).map_err(|cause| Error::io("listing", folder, cause))?;
        let positions = Mutex::new(names.iter().filter_map(|name| parse_file_name(name)).collect());
        Ok(Images { disk, folder: folder.to_path_buf(), positions })
    }

    /// Where the last image stands, also if its checkpoint has not come to its end.
    pub(crate) fn newest(&self) -> Option<Csn> {
        self.positions.lock().iter().copied().max()
    }

    /// The bytes of an image's file.
    ///
    /// # Errors
    /// `Corrupt` if it is missing or damaged.
    pub fn read(&self, position: Csn) -> Result<Vec<u8>, Error> {
        let path = self.folder.join(file_name(position));
        let fail = |cause| Error::io("reading", &path, cause);
        let file = match self.disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::corrupt(&path, 0, "the image is missing"));
            }
            Err(cause) => return Err(fail(cause)),
        };
        let mut bytes = vec![0; file.len().map_err(fail)? as usize];
        file.read_exact_at(&mut bytes, 0).map_err(fail)?;
        match decode(&bytes) {
            Ok((found, _)) if found == position => Ok(bytes),
            Ok((found, _)) => Err(Error::corrupt(&path, 12, format!("image of position {found}"))),
            Err((offset, what)) => Err(Error::corrupt(&path, offset, what)),
        }
    }

    /// An image whose content makes no sense.
    pub fn damaged(&self, position: Csn, what: String) -> Error {
        Error::corrupt(&self.folder.join(file_name(position)), HEADER as u64, what)
    }

    /// Keeps an image, durably.
    pub fn write(&self, position: Csn, content: &[u8]) -> Result<(), Error> {
        let (path, fresh) = (self.folder.join(file_name(position)), self.folder.join(NEW));
        let fail = |cause| Error::io("writing", &fresh, cause);
        let file = self.disk.open(&fresh, OpenMode::Truncate).map_err(fail)?;
        let written = file.write_all_at(&encode(position, content), 0).map_err(fail);
        let flush = || file.sync_data().map_err(|cause| Error::io("flushing", &fresh, cause));
        // A part of it would take the last of a disk that is almost full.
        let written = written.and_then(|()| flush());
        if written.is_err() {
            let _ = self.disk.remove(&fresh);
        }
        written?;
        self.disk.rename(&fresh, &path).map_err(|cause| Error::io("renaming", &path, cause))?;
        self.disk.sync_dir(&self.folder).map_err(|cause| Error::io("flushing", &self.folder, cause))?;
        let mut positions = self.positions.lock();
        positions.retain(|at| *at != position);
        positions.push(position);
        Ok(())
    }

    /// Removes all images but that at the watermark.
    pub fn keep_only(&self, watermark: Csn) -> Result<(), Error> {
        let mut positions = self.positions.lock();
        while let Some(place) = positions.iter().position(|at| *at != watermark) {
            let path = self.folder.join(file_name(positions[place]));
            self.disk.remove(&path).map_err(|cause| Error::io("removing", &path, cause))?;
            positions.remove(place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cognate_env::RealDisk;

    use super::*;

    #[test]
    fn the_image_at_the_watermark_stays() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let images = Images::open(Arc::clone(&disk), folder.path()).unwrap();
        for position in [7, 30, 200] {
            images.write(position, format!("at {position}").as_bytes()).unwrap();
        }
        images.keep_only(30).unwrap();
        let images = Images::open(Arc::clone(&disk), folder.path()).unwrap();
        assert_eq!(decode(&images.read(30).unwrap()), Ok((30, &b"at 30"[..])));
        assert_eq!(disk.list(folder.path()).unwrap().len(), 1);
        assert!(matches!(images.read(200), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let whole = encode(7, b"content");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&whole[..at]).is_err(), "cut at {at}");
        }
    }
}
