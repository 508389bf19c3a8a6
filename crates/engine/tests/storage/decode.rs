//! Decoders meet arbitrary and damaged bytes, and round trips.

use cognate_engine::storage::block::{Block, BlockBuilder};
use cognate_engine::storage::fuzz::{fuzz_record, fuzz_run};
use cognate_engine::storage::manifest::Manifest;
use cognate_engine::storage::partition::{FrameAt, IndexBuilder, IndexTable};
use cognate_engine::storage::record::{
    BATCH_HEADER, BatchKind, decode_body, decode_header, encode_record, seal_batch,
};
use cognate_engine::storage::run::RunName;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

/// Keys that share prefixes and differ late, or hardly.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(0_u8..3, 0..12),
        (0_u64..500).prop_map(|number| number.to_be_bytes().to_vec()),
        vec(any::<u8>(), 0..20),
        (0_u8..9).prop_map(|zeros| [b"prefix".to_vec(), vec![0; zeros as usize]].concat()),
    ]
}

fn batch(payloads: &[Vec<u8>], first: u64, salt: u64) -> Vec<u8> {
    let mut batch = vec![0; BATCH_HEADER];
    for (index, payload) in payloads.iter().enumerate() {
        encode_record(&mut batch, first + index as u64, &[payload]);
    }
    seal_batch(&mut batch, BatchKind::Records, first, payloads.len() as u32, 7, salt);
    batch
}

fn block(entries: &std::collections::BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    for (key, value) in entries {
        builder.add(key, value.as_deref());
    }
    let mut frame = vec![0; 8];
    let size = builder.size();
    builder.finish(9, &mut frame);
    assert_eq!(frame.len(), 8 + size);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_refused_calmly(bytes in vec(any::<u8>(), 0..300)) {
        fuzz_record(&bytes);
        fuzz_run(&bytes);
        fuzz_run(&[&[0; 8], &bytes[..]].concat());
    }

    #[test]
    fn batches_come_back_and_any_flip_is_noticed(
        payloads in vec(vec(any::<u8>(), 0..60), 1..6), first in 1_u64..1000, salt: u64, at: u16, bit in 0_u8..8,
    ) {
        let mut bytes = batch(&payloads, first, salt);
        let header = decode_header(&bytes, salt).unwrap();
        prop_assert_eq!((header.first, header.count as usize, header.chain), (first, payloads.len(), 7));
        prop_assert!(decode_header(&bytes, salt ^ 1).is_none());
        let mut found = Vec::new();
        decode_body::<()>(&header, &bytes[BATCH_HEADER..], &mut |record| {
            found.push((record.csn, record.payload.to_vec()));
            Ok(())
        }).unwrap().unwrap();
        let expected: Vec<_> = (first..).zip(payloads).collect();
        prop_assert_eq!(found, expected);

        let at = at as usize % bytes.len();
        bytes[at] ^= 1 << bit;
        let noticed = match decode_header(&bytes, salt) {
            None => true,
            Some(header) => decode_body::<()>(&header, &bytes[BATCH_HEADER..], &mut |_| Ok(())).unwrap().is_err(),
        };
        prop_assert!(noticed, "flip at {at}");
        fuzz_record(&bytes);
    }

    #[test]
    fn blocks_find_what_they_hold(
        entries in btree_map(key(), proptest::option::of(vec(any::<u8>(), 0..200)), 1..80),
        others in vec(key(), 0..20),
    ) {
        let block = Block::decode(block(&entries)).unwrap();
        prop_assert_eq!((block.tree(), block.count()), (9, entries.len()));
        for (index, (key, value)) in entries.iter().enumerate() {
            prop_assert_eq!(block.search(key), Ok(index));
            prop_assert_eq!((block.key(index), block.value(index)), (&key[..], value.as_deref()));
            let owned = block.owned_value(index);
            prop_assert_eq!(owned.as_deref(), value.as_deref());
        }
        for key in others.iter().filter(|key| !entries.contains_key(*key)) {
            prop_assert_eq!(block.search(key), Err(entries.range::<Vec<u8>, _>(..key).count()));
        }
    }

    #[test]
    fn damaged_blocks_and_indexes_do_not_panic(
        entries in btree_map(key(), proptest::option::of(vec(any::<u8>(), 0..9)), 1..20),
        at: u16, byte: u8, cut: u16,
    ) {
        let mut bytes = block(&entries);
        let at = at as usize % bytes.len();
        bytes[at] = byte;
        fuzz_run(&bytes);
        bytes.truncate(cut as usize % bytes.len());
        fuzz_run(&bytes);
    }

    #[test]
    fn indexes_find_the_frame(
        separators in btree_set((prop_oneof![Just(5_u32), 4_u32..7], key()), 1..60),
        wanted in vec((4_u32..7, key()), 1..30),
    ) {
        let mut builder = IndexBuilder::default();
        for (index, (tree, key)) in separators.iter().enumerate() {
            builder.add(FrameAt { offset: index as u64 * 100, length: index as u32 }, *tree, key);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        let table = IndexTable::decode(bytes.into()).unwrap();
        for (tree, key) in separators.iter().chain(&wanted) {
            let expected = separators.iter().filter(|separator| **separator <= (*tree, key.clone())).count();
            prop_assert_eq!(table.find(*tree, key), expected.checked_sub(1));
        }
        let last = table.count() - 1;
        prop_assert_eq!(table.frame(last), FrameAt { offset: last as u64 * 100, length: last as u32 });
    }

    #[test]
    fn manifests_come_back_and_any_flip_is_noticed(
        numbers: (u64, u64, u64), runs in vec((any::<u64>(), any::<u64>()), 0..6),
        dropped in btree_set(any::<u32>(), 0..6), at: u16, bit in 0_u8..8,
    ) {
        let mut runs: Vec<RunName> =
            runs.into_iter().map(|(number, length)| RunName { number, length }).collect();
        let staged = runs.split_off(runs.len() / 2);
        let (generation, watermark, next_run) = numbers;
        let dropped = dropped.into_iter().collect();
        let manifest = Manifest { generation, watermark, next_run, runs, staged, dropped };
        let mut bytes = manifest.encode();
        prop_assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        let at = at as usize % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert!(Manifest::decode(&bytes).is_err());
        fuzz_run(&bytes);
    }
}
