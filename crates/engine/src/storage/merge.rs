//! Merging runs into one: a streaming pass over all their entries with bounded memory, past the
//! cache.
//!
//! Which runs: runs are ordered newest to oldest, and only neighbours may be merged. Sizes should
//! grow geometrically toward the oldest; see [`choose`].

use std::ops::Range;
use std::sync::Arc;

use super::block::Block;
use super::frame::FrameKind;
use super::run::{Frames, Run, RunName};
use super::run_writer::RunWriter;
use crate::{Error, TreeId};

/// This many similar neighbours are merged.
const FAN_IN: usize = 4;

/// Entries between questions whether to go on.
const ASK_INTERVAL: u32 = 1024;

/// Which neighbours to merge, newest first; `None` if the runs are in good shape, or none of those
/// that should be merged come to `room` bytes or less together. Of a window that does not fit it is
/// the newest runs that do, if they are enough.
///
/// 1. A run of which a quarter or more belongs to dropped trees is rewritten alone.
/// 2. From the newest run on: a window whose next run is not larger than the window so far, four or
///    more runs wide. A row is thus rewritten about once for each doubling of the store, at most.
/// 3. If there are more than `runs_max` runs, the newest are merged until there are not.
pub fn choose(sizes: &[u64], dropped: &[u64], runs_max: usize, room: u64) -> Option<Range<usize>> {
    let bytes = |window: &Range<usize>| {
        let sum = |of: &[u64]| of[window.clone()].iter().sum::<u64>();
        sum(sizes).saturating_sub(sum(dropped))
    };
    let fitting = |window: Range<usize>, least: usize| {
        let ends = (window.start + least..=window.end).rev();
        ends.map(|end| window.start..end).find(|part| bytes(part) <= room)
    };
    let mut worn = (0..sizes.len()).filter(|&at| dropped[at] > 0 && dropped[at] >= sizes[at] / 4);
    if let Some(window) = worn.find_map(|at| fitting(at..at + 1, 1)) {
        return Some(window);
    }
    for start in 0..sizes.len() {
        let mut end = start + 1;
        let mut sum = sizes[start];
        while end < sizes.len() && sizes[end] <= sum {
            sum += sizes[end];
            end += 1;
        }
        if let Some(window) = fitting(start..end, FAN_IN) {
            return Some(window);
        }
    }
    if sizes.len() > runs_max { fitting(0..sizes.len() - runs_max + 1, 2) } else { None }
}

/// What a merge leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Omit<'a> {
    /// Trees that are dropped, ascending.
    pub dropped: &'a [TreeId],
    /// Deletions: nothing older than these runs exists that they would have to hide.
    pub deletions: bool,
}

/// Merges `runs`, newest first, into `writer`. `None` if nothing is left. Ends with the error that
/// `go_on` answers.
pub fn merge(
    runs: &[Arc<Run>],
    mut writer: RunWriter,
    omit: Omit<'_>,
    go_on: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Option<RunName>, Error> {
    let mut streams = Vec::with_capacity(runs.len());
    for run in runs {
        let mut stream = Stream { run, frames: run.frames(), block: None, at: 0, entry: 0 };
        stream.next_block()?;
        streams.push(stream);
    }
    streams.retain(|stream| stream.block.is_some());
    let mut countdown = ASK_INTERVAL;
    while let Some(best) = least(&streams) {
        countdown -= 1;
        if countdown == 0 {
            countdown = ASK_INTERVAL;
            go_on()?;
        }
        // The block is cheap to clone and keeps the key alive while the streams move on.
        let Some(block) = streams[best].block.clone() else { break };
        let (run, at, entry) = (streams[best].run, streams[best].at, streams[best].entry);
        let (tree, key, value) = (block.tree(), block.key(entry), block.value(entry));
        for index in (best..streams.len()).rev() {
            if index == best || streams[index].key() == Some((tree, key)) {
                streams[index].advance()?;
                if streams[index].block.is_none() {
                    streams.remove(index);
                }
            }
        }
        if (value.is_none() && omit.deletions) || omit.dropped.binary_search(&tree).is_ok() {
            continue;
        }
        // The least of all that come next is behind what came before, unless its own run is not in
        // order.
        writer.add(tree, key, value).map_err(|error| match error {
            Error::InvalidArgument(what) => Error::corrupt(run.path(), at, what),
            other => other,
        })?;
    }
    writer.finish()
}

fn least(streams: &[Stream<'_>]) -> Option<usize> {
    let mut best = 0;
    let mut best_key = streams.first()?.key()?;
    for (index, stream) in streams.iter().enumerate().skip(1) {
        let key = stream.key()?;
        if key < best_key {
            (best, best_key) = (index, key);
        }
    }
    Some(best)
}

/// One run's entries in order.
struct Stream<'a> {
    run: &'a Run,
    frames: Frames<'a>,
    block: Option<Block>,
    /// Where the block is in the file.
    at: u64,
    entry: usize,
}

impl Stream<'_> {
    fn key(&self) -> Option<(TreeId, &[u8])> {
        self.block.as_ref().map(|block| (block.tree(), block.key(self.entry)))
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.entry += 1;
        if self.block.as_ref().is_some_and(|block| self.entry < block.count()) {
            Ok(())
        } else {
            self.next_block()
        }
    }

    fn next_block(&mut self) -> Result<(), Error> {
        self.block = None;
        self.entry = 0;
        while let Some((kind, frame, at)) = self.frames.next_frame()? {
            if kind == FrameKind::Block {
                let block = Block::decode(frame.to_vec())
                    .map_err(|what| Error::corrupt(self.run.path(), at, what))?;
                (self.block, self.at) = (Some(block), at);
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cognate_env::OpenMode;
    use cognate_env::sim::SimDisk;

    use super::super::frame::{self, FRAME_HEADER};
    use super::super::run::{RUN_HEADER, run_file_name};
    use super::*;

    /// Each of them has the right checksum, and together they are no run.
    #[test]
    fn a_block_that_is_out_of_order_is_named() {
        let (disk, folder) = (SimDisk::new(1).handle(), Path::new("base"));
        disk.create_dir_all(folder).unwrap();
        let mut writer = RunWriter::create(&disk, folder, 1).unwrap();
        for tree in [7_u32, 8] {
            writer.add(tree, b"k", Some(&b"v"[..])).unwrap();
        }
        let name = writer.finish().unwrap().unwrap();
        let path = folder.join(run_file_name(1));
        let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let length = |bytes: &[u8]| FRAME_HEADER + frame::claim(bytes).unwrap().1;
        let second = RUN_HEADER + length(&bytes[RUN_HEADER..]);
        let end = second + length(&bytes[second..]);
        let body = second + FRAME_HEADER;
        bytes[body..body + 4].copy_from_slice(&6_u32.to_le_bytes());
        frame::seal(&mut bytes[..end], second, FrameKind::Block, 1, second as u64);
        file.write_all_at(&bytes, 0).unwrap();
        let run = Arc::new(Run::open(&disk, folder, name, 0).unwrap());
        let into = RunWriter::create(&disk, folder, 2).unwrap();
        let omit = Omit { dropped: &[], deletions: false };
        let merged = merge(&[run], into, omit, &mut || Ok(()));
        let Err(Error::Corrupt { file, offset, .. }) = merged else { panic!("{merged:?}") };
        assert_eq!((file, offset), (path, second as u64));
    }

    #[test]
    fn merges_are_chosen_by_size_and_drops() {
        let none = [0; 12];
        let choose = |sizes: &[u64], dropped: &[u64], runs_max| choose(sizes, dropped, runs_max, u64::MAX);
        assert_eq!(choose(&[], &[], 8), None);
        assert_eq!(choose(&[10, 10, 10], &none, 8), None);
        assert_eq!(choose(&[10, 10, 10, 10], &none, 8), Some(0..4));
        assert_eq!(choose(&[10, 10, 10, 10, 1000], &none, 8), Some(0..4));
        assert_eq!(choose(&[1, 100, 100, 100, 100], &none, 8), Some(1..5));
        assert_eq!(choose(&[1, 2, 4, 8, 16, 32, 64, 128, 256], &none, 8), Some(0..2));
        assert_eq!(choose(&[1, 2, 4, 8, 16, 32, 64, 128], &none, 8), None);
        assert_eq!(choose(&[100, 100], &[0, 30], 8), Some(1..2));
        assert_eq!(choose(&[100, 100], &[0, 20], 8), None);
    }

    #[test]
    fn merges_for_which_there_is_no_room_make_way_for_smaller_ones() {
        let none = [0; 12];
        let runs = [10, 10, 10, 10, 40, 80];
        assert_eq!(choose(&runs, &none, 8, 160), Some(0..6));
        assert_eq!(choose(&runs, &none, 8, 159), Some(0..5));
        assert_eq!(choose(&runs, &none, 8, 79), Some(0..4));
        assert_eq!(choose(&runs, &none, 8, 39), None);
        assert_eq!(choose(&[10, 10, 10, 10, 1000], &[0, 0, 0, 0, 300], 8, 700), Some(4..5));
        assert_eq!(choose(&[10, 10, 10, 10, 1000], &[0, 0, 0, 0, 300], 8, 699), Some(0..4));
        assert_eq!(choose(&[1, 2, 4, 8, 16], &none, 2, 15), Some(0..4));
        assert_eq!(choose(&[1, 2, 4, 8, 16], &none, 2, 3), Some(0..2));
        assert_eq!(choose(&[1, 2, 4, 8, 16], &none, 2, 2), None);
    }
}
