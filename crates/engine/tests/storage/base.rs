//! The base store on the real disk against a model: a sorted map.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::storage::{Base, BaseOptions};
use cognate_engine::{Error, Key, TreeId, Value};
use cognate_env::{RealDisk, SplitMix};
use proptest::prelude::*;

type Model = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;
type Change = (TreeId, Key, Option<Value>);

fn open(folder: &Path) -> Result<Base, Error> {
    let options = BaseOptions { cache_bytes: 256 << 10, runs_max: 5, verify: true };
    Base::open(Arc::new(RealDisk), folder, options)
}

fn key(random: &mut SplitMix, spread: u64) -> Vec<u8> {
    let number = random.below(spread);
    let mut key = number.to_be_bytes()[random.below(3) as usize * 3..].to_vec();
    if number.is_multiple_of(97) {
        key.resize(key.len() + random.below(300) as usize, b'k');
    }
    key
}

fn value(random: &mut SplitMix) -> Vec<u8> {
    let length = if random.one_in(200) { random.below(20_000) } else { random.below(120) };
    let fill = random.bits() as u8;
    vec![fill; length as usize]
}

/// Sorted random changes of some trees, applied to the model too.
fn changes(
    random: &mut SplitMix,
    model: &mut Model,
    trees: &[TreeId],
    count: u64,
    spread: u64,
) -> Vec<Change> {
    let mut batch = BTreeMap::new();
    for _ in 0..count {
        let tree = trees[random.below(trees.len() as u64) as usize];
        let value = if random.one_in(4) { None } else { Some(value(random)) };
        batch.insert((tree, key(random, spread)), value);
    }
    let mut changes = Vec::new();
    for ((tree, key), value) in batch {
        match &value {
            Some(value) => model.insert((tree, key.clone()), value.clone()),
            None => model.remove(&(tree, key.clone())),
        };
        changes.push((tree, Bytes::from(key), value.map(Bytes::from)));
    }
    changes
}

fn bound(random: &mut SplitMix, spread: u64) -> Bound<Vec<u8>> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random, spread)),
        _ => Bound::Excluded(key(random, spread)),
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

fn scan_model(
    model: &Model,
    tree: TreeId,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let above = |key: &[u8]| match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    };
    let below = |key: &[u8]| match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    };
    let of_tree = model.range((tree, Vec::new())..).take_while(|((found, _), _)| *found == tree);
    let within = of_tree.filter(|((_, key), _)| above(key) && below(key));
    within.map(|((_, key), value)| (key.clone(), value.clone())).collect()
}

fn check_scan(base: &Base, model: &Model, tree: TreeId, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
    let mut expected = scan_model(model, tree, lower, upper);
    for reverse in [false, true] {
        let mut scan = base.scan(tree, lower, upper, reverse).unwrap();
        for (key, value) in &expected {
            let (found_key, found_value) = scan.next().unwrap().expect("an entry is missing");
            assert_eq!(
                (&found_key[..], &found_value[..]),
                (&key[..], &value[..]),
                "tree {tree} reverse {reverse}"
            );
        }
        assert!(scan.next().unwrap().is_none() && scan.next().unwrap().is_none());
        expected.reverse();
    }
}

fn check(base: &Base, model: &Model, trees: &[TreeId], random: &mut SplitMix, spread: u64) {
    for &tree in trees {
        check_scan(base, model, tree, Bound::Unbounded, Bound::Unbounded);
        for _ in 0..5 {
            let (lower, upper) = (bound(random, spread), bound(random, spread));
            check_scan(base, model, tree, as_slice(&lower), as_slice(&upper));
        }
        for _ in 0..50 {
            let key = key(random, spread);
            let found = base.get(tree, &key).unwrap();
            assert_eq!(found.as_deref(), model.get(&(tree, key)).map(|value| &value[..]));
        }
    }
    for ((tree, key), value) in model.iter().step_by(7) {
        assert_eq!(base.get(*tree, key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// Whether a load waits for a checkpoint: a reopening would have to replay its commit.
fn attached(base: &Base) -> bool {
    base.statistics().attached > 0
}

/// Loads a new tree in portions and commits it as `csn`, or rolls it back. With reopenings on the
/// way, as recovery would see them.
fn load(
    base: &mut Base,
    model: &mut Model,
    random: &mut SplitMix,
    (tree, spread, csn): (TreeId, u64, u64),
    folder: &Path,
) -> bool {
    let mut loaded = Model::new();
    let mut portions = Vec::new();
    for _ in 0..=random.below(4) {
        let count = random.below(1500);
        let changes = changes(random, &mut loaded, &[tree], count, spread);
        portions.extend(base.stage(&mut changes.into_iter()).unwrap());
    }
    let view = base.view_of(&portions);
    for (key, value) in scan_model(&loaded, tree, Bound::Unbounded, Bound::Unbounded) {
        assert_eq!(view.get(tree, &key).unwrap().as_deref(), Some(&value[..]));
    }
    assert!(base.scan(tree, Bound::Unbounded, Bound::Unbounded, false).unwrap().next().unwrap().is_none());
    let numbers: Vec<u64> = portions.iter().map(|portion| portion.number()).collect();
    let reopened = random.one_in(3) && !attached(base);
    if reopened {
        drop((view, portions));
        *base = open(folder).unwrap();
        portions = Vec::new();
    }
    if random.one_in(3) {
        if reopened {
            base.discard_unattached(&[]).unwrap();
        } else {
            base.discard(&portions).unwrap();
        }
        assert!(numbers.is_empty() || base.attach(&numbers, csn).is_err());
        return false;
    }
    base.attach(&numbers, csn).unwrap();
    base.attach(&numbers, csn).unwrap();
    base.discard_unattached(&[]).unwrap();
    model.append(&mut loaded);
    check_scan(base, model, tree, Bound::Unbounded, Bound::Unbounded);
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any history of checkpoints, drops, merges and reopenings reads like the sorted map.
    #[test]
    fn the_base_store_reads_like_a_sorted_map(seed: u64, steps in 1_usize..25, spread in 10_u64..20_000) {
        let mut random = SplitMix::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut base = open(folder.path()).unwrap();
        let mut model = Model::new();
        let mut trees: Vec<TreeId> = vec![0, 1, 1000, 1001, 1002, TreeId::MAX];
        for step in 1..=steps as u64 {
            let mut dropped = Vec::new();
            if trees.len() > 2 && random.one_in(8) {
                dropped.push(trees.remove(random.below(trees.len() as u64) as usize));
                model.retain(|(tree, _), _| !dropped.contains(tree));
            }
            let count = random.below(2000);
            let changes = changes(&mut random, &mut model, &trees, count, spread);
            base.apply(step, &mut changes.into_iter(), &dropped).unwrap();
            for tree in dropped {
                check_scan(&base, &model, tree, Bound::Unbounded, Bound::Unbounded);
            }
            prop_assert_eq!(base.watermark(), step);
            if random.one_in(3) {
                let tree = 2000 + step as TreeId;
                let done = load(&mut base, &mut model, &mut random, (tree, spread, step + 1), folder.path());
                trees.extend(done.then_some(tree));
            }
            if random.one_in(2) {
                while base.compact_step().unwrap() {}
                prop_assert!(base.statistics().runs <= 5);
            }
            if random.one_in(6) && !attached(&base) {
                drop(base);
                base = open(folder.path()).unwrap();
                prop_assert_eq!(base.watermark(), step);
            }
            if random.one_in(4) {
                check(&base, &model, &trees, &mut random, spread);
            }
        }
        base.apply(steps as u64 + 1, &mut [].into_iter(), &[]).unwrap();
        base.compact_all().unwrap();
        prop_assert!(base.statistics().runs <= 1);
        check(&base, &model, &trees, &mut random, spread);
        let expected: BTreeSet<TreeId> = model.keys().map(|(tree, _)| *tree).collect();
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count() as u64, 1 + base.statistics().runs, "{:?}", expected);
    }

    /// One flipped bit in any file of the base store is named when it is opened.
    #[test]
    fn a_flipped_bit_is_named(seed: u64) {
        let mut random = SplitMix::new(seed);
        let folder = filled(&mut random);
        let (path, offset) = any_byte(folder.path(), &mut random);
        let mut bytes = fs::read(&path).unwrap();
        bytes[offset] ^= 1 << random.below(8);
        fs::write(&path, &bytes).unwrap();
        match open(folder.path()) {
            Err(Error::Corrupt { file, offset: named, .. }) => {
                prop_assert_eq!(&file, &path);
                prop_assert!(named <= offset as u64, "{named} names damage at {offset}");
            }
            other => prop_assert!(false, "flip at {offset} of {path:?}: {:?}", other.map(|_| ())),
        }
    }

    /// A file cut anywhere, or gone, is named.
    #[test]
    fn a_cut_or_missing_file_is_named(seed: u64) {
        let mut random = SplitMix::new(seed);
        let folder = filled(&mut random);
        let (path, offset) = any_byte(folder.path(), &mut random);
        if random.one_in(3) {
            fs::remove_file(&path).unwrap();
        } else {
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(offset as u64).unwrap();
        }
        match open(folder.path()) {
            Err(Error::Corrupt { file, .. }) => prop_assert_eq!(&file, &path),
            other => prop_assert!(false, "cut at {offset} of {path:?}: {:?}", other.map(|_| ())),
        }
    }
}

fn filled(random: &mut SplitMix) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let base = open(folder.path()).unwrap();
    let mut model = Model::new();
    for step in 1..4 {
        let changes = changes(random, &mut model, &[1, 2], 1500, 1000);
        base.apply(step, &mut changes.into_iter(), &[]).unwrap();
    }
    folder
}

fn any_byte(folder: &Path, random: &mut SplitMix) -> (PathBuf, usize) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let path = paths.swap_remove(random.below(paths.len() as u64) as usize);
    let length = fs::metadata(&path).unwrap().len();
    (path, random.below(length) as usize)
}

#[test]
fn a_scan_outlives_the_merge_of_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let base = open(folder.path()).unwrap();
    let mut model = Model::new();
    let mut random = SplitMix::new(5);
    for step in 1..=4 {
        let changes = changes(&mut random, &mut model, &[7], 2000, 5000);
        base.apply(step, &mut changes.into_iter(), &[]).unwrap();
    }
    let mut scan = base.scan(7, Bound::Unbounded, Bound::Unbounded, false).unwrap();
    let expected = scan_model(&model, 7, Bound::Unbounded, Bound::Unbounded);
    assert_eq!(scan.next().unwrap().unwrap().0, expected[0].0);
    base.compact_all().unwrap();
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        6,
        "four pinned runs, the merged one, the manifest"
    );
    let delete_all: Vec<Change> =
        expected.iter().map(|(key, _)| (7, Bytes::copy_from_slice(key), None)).collect();
    base.apply(5, &mut delete_all.into_iter(), &[]).unwrap();
    for (key, value) in &expected[1..] {
        let (found_key, found_value) = scan.next().unwrap().unwrap();
        assert_eq!((&found_key[..], &found_value[..]), (&key[..], &value[..]));
    }
    drop(scan);
    base.compact_all().unwrap();
    assert_eq!(base.statistics().runs, 0, "deletions vanish with what they delete");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the manifest is left");
}

#[test]
fn wrong_arguments_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let base = open(folder.path()).unwrap();
    let entry = |key: &'static [u8]| (1, Bytes::from_static(key), Some(Bytes::from_static(b"v")));
    base.apply(5, &mut [entry(b"a")].into_iter(), &[]).unwrap();
    assert!(matches!(base.apply(4, &mut [].into_iter(), &[]), Err(Error::InvalidArgument(_))));
    let twice = [entry(b"b"), entry(b"b")];
    assert!(matches!(base.apply(6, &mut twice.into_iter(), &[]), Err(Error::InvalidArgument(_))));
    assert_eq!(base.watermark(), 5);
    assert_eq!(base.get(1, b"b").unwrap(), None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
