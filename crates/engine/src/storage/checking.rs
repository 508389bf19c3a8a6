//! The checksums of a run on its way into a backup, or to another node.
//!
//! The list at a backup's end has the checksum of what was sent. That tells whoever takes it in
//! that it came as it was sent, and not that the server read what it once wrote: bytes may have
//! rotted since it was started. So the checksums that the run's frames had before are looked at
//! here, portion by portion as they are sent. What would be of no use to anybody ends with an error
//! that names file and offset; and a node does not give up what it has for another one's damage.
//!
//! Invariant: `position` is where a part of the file begins (header, frame or footer), and all
//! parts before it are sound.

use super::frame::FRAME_HEADER;
use super::run::Run;
use crate::Error;

/// See the module's prose.
#[derive(Debug, Default)]
pub(super) struct Checking {
    position: u64,
    /// The first bytes of the part that begins there.
    head: Vec<u8>,
    /// A frame whose head is complete.
    frame: Option<OpenFrame>,
}

#[derive(Debug)]
struct OpenFrame {
    /// The checksum that it has to have.
    expected: u32,
    /// That of what has come so far.
    computed: u32,
    length: usize,
    left: usize,
}

impl Checking {
    /// Takes the run's next bytes.
    ///
    /// # Errors
    /// `Corrupt` naming file and offset.
    pub(super) fn take(&mut self, run: &Run, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            match &mut self.frame {
                Some(frame) => {
                    let (part, rest) = bytes.split_at(frame.left.min(bytes.len()));
                    frame.computed = crc32c::crc32c_append(frame.computed, part);
                    frame.left -= part.len();
                    bytes = rest;
                }
                None => {
                    let wanted = run.part_head(self.position) - self.head.len();
                    let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
                    self.head.extend_from_slice(part);
                    bytes = rest;
                    if part.len() == wanted {
                        self.take_head(run)?;
                    }
                }
            }
            self.end_frame(run)?;
        }
        Ok(())
    }

    fn take_head(&mut self, run: &Run) -> Result<(), Error> {
        match run.check_head(&self.head, self.position)? {
            Some((expected, computed, length)) => {
                self.frame = Some(OpenFrame { expected, computed, length, left: length });
            }
            None => self.position += self.head.len() as u64,
        }
        self.head.clear();
        Ok(())
    }

    /// Goes on behind the frame, if all of it has come.
    fn end_frame(&mut self, run: &Run) -> Result<(), Error> {
        let Some(frame) = self.frame.take_if(|frame| frame.left == 0) else { return Ok(()) };
        let OpenFrame { expected, computed, length, .. } = frame;
        if computed != expected {
            let what = format!("block has checksum {computed:08x}, expected {expected:08x}");
            return Err(Error::corrupt(run.path(), self.position, what));
        }
        self.position += (FRAME_HEADER + length) as u64;
        Ok(())
    }
}
