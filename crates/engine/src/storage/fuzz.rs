//! Entries for a fuzzer, one for each decoder of bytes from disk. They must return, whatever the
//! bytes: no panic, no allocation by a length that was read and not checked. The property tests
//! call them too.

use bytes::Bytes;

use super::block::Block;
use super::filter;
use super::manifest::Manifest;
use super::partition::Partition;
use super::record::{BATCH_HEADER, BatchHeader, BatchKind, decode_body, decode_header};
use super::run::Top;
use super::segment::decode_segment_header;

/// Decodes bytes as a log batch of a segment with salt 0, and as a batch's records without the
/// header's protection.
pub fn fuzz_record(bytes: &[u8]) {
    if let Some(header) = decode_header(bytes, 0) {
        let body = &bytes[BATCH_HEADER..];
        let body = &body[..body.len().min(header.body as usize)];
        let _ = decode_body::<()>(&header, body, &mut |_| Ok(()));
    }
    let header = BatchHeader { kind: BatchKind::Records, first: 1, count: 8, body: 0, chain: 0, crc: 0 };
    let _ = decode_body::<()>(&header, bytes, &mut |_| Ok(()));
    let _ = decode_segment_header(bytes);
}

/// Decodes bytes as the frames of a run and as a manifest, and uses what comes out.
pub fn fuzz_run(bytes: &[u8]) {
    let key = &bytes[..bytes.len().min(3)];
    if let Ok(block) = Block::decode(bytes.to_vec()) {
        let _ = block.search(key);
        for index in 0..block.count() {
            let _ = (block.key(index), block.value(index), block.owned_value(index));
        }
    }
    if let Ok(partition) = Partition::decode(Bytes::copy_from_slice(bytes)) {
        let _ = filter::may_contain(&partition.filter, filter::hash(1, key));
        let _ = partition.blocks.find(1, key);
    }
    let _ = Top::decode(bytes);
    let _ = Manifest::decode(bytes);
}
