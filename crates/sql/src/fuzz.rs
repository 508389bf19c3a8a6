//! The entry for a fuzzer of keys: they come from disk, so any bytes may be read as one. The
//! property tests call it too.

use crate::keys::{self, KeyOrder};
use crate::types::{Type, TypeId};

/// Reads bytes as a key of each type and order that the first byte draws: what can be read can be
/// passed over, and written and read again without a change.
pub fn fuzz_key(bytes: &[u8]) {
    let Some((&drawn, key)) = bytes.split_first() else { return };
    let order = KeyOrder { descending: drawn & 1 == 1, nulls_first: drawn & 2 == 2 };
    for ty in TypeId::all().map(Type::new) {
        let (mut read, mut passed) = (key, key);
        let decoded = keys::decode(&mut read, ty, order);
        let skipped = keys::skip(&mut passed, ty, order);
        let Ok(value) = decoded else { continue };
        assert!(skipped.is_ok() && passed.len() == read.len(), "{ty:?}: read and passed over differ");
        let mut written = Vec::new();
        keys::encode_into(&mut written, &value, order);
        let mut again = &written[..];
        let same = keys::decode(&mut again, ty, order).expect("what was written can be read");
        assert!(again.is_empty(), "{ty:?}: {written:?} is longer than its value");
        let mut twice = Vec::new();
        keys::encode_into(&mut twice, &same, order);
        assert_eq!(written, twice, "{ty:?}");
    }
}
