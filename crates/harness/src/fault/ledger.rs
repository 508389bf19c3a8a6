//! What clients know about their transactions, and the judgement of what a server holds after a
//! crash.
//!
//! Each client owns its own entries, so its part of the table is a pure function of its own
//! transactions:
//! ```text
//!   acknowledged   the commit's answer came                  it must be there
//!   refused        rolled back, or an error came             it must not be there
//!   in doubt       the answer to COMMIT never came           all of it or nothing
//! ```
//! At most one transaction of a client is in doubt at a time. The judgement of a client is
//! therefore: its rows are the acknowledged state, or that state with the whole transaction in
//! doubt applied; anything else is a violation.
//!
//! Every entry moves an amount between two accounts in the same transaction, so the accounts'
//! balances follow from the entries that are there; and every entry is found by a unique index on
//! its tag and an index on its source account.

use std::collections::BTreeMap;

/// An entry's key: client and number.
pub type EntryKey = (i32, i32);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The account that pays.
    pub source: i32,
    /// The account that receives.
    pub target: i32,
    /// How much.
    pub amount: i64,
    /// Unique among all entries.
    pub tag: String,
}

/// What one transaction does to its client's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Entries written, new or changed.
    pub put: Vec<(EntryKey, Entry)>,
    /// Entries removed.
    pub removed: Vec<EntryKey>,
}

impl Change {
    /// Applies the change to entries.
    pub fn apply(&self, entries: &mut BTreeMap<EntryKey, Entry>) {
        for (key, entry) in &self.put {
            entries.insert(*key, entry.clone());
        }
        for key in &self.removed {
            entries.remove(key);
        }
    }
}

/// What one client knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The client's number.
    pub client: i32,
    /// All acknowledged transactions, applied.
    pub entries: BTreeMap<EntryKey, Entry>,
    /// The transaction whose COMMIT was sent and never answered.
    pub in_doubt: Option<Change>,
    /// How many transactions were acknowledged.
    pub acknowledged: u64,
}

impl Ledger {
    /// A client that has done nothing yet.
    pub fn new(client: i32) -> Ledger {
        Ledger { client, ..Ledger::default() }
    }

    /// A transaction's commit was acknowledged.
    pub fn acknowledge(&mut self, change: &Change) {
        change.apply(&mut self.entries);
        self.acknowledged += 1;
    }

    /// Compares with the client's rows as a server holds them, and goes on from these. Returns
    /// whether the transaction in doubt turned out to have committed; an error says what differs.
    pub fn judge(&mut self, held: BTreeMap<EntryKey, Entry>) -> Result<bool, String> {
        let in_doubt = self.in_doubt.take();
        if held == self.entries {
            return Ok(false);
        }
        let Some(change) = in_doubt else { return Err(difference(self.client, &self.entries, &held)) };
        let mut with = self.entries.clone();
        change.apply(&mut with);
        if held == with {
            self.entries = held;
            return Ok(true);
        }
        let without = difference(self.client, &self.entries, &held);
        let with = difference(self.client, &with, &held);
        Err(format!("{without}; with the transaction in doubt: {with}"))
    }
}

/// The first few differences between what should be there and what is.
fn difference(client: i32, expected: &BTreeMap<EntryKey, Entry>, held: &BTreeMap<EntryKey, Entry>) -> String {
    let missing =
        expected.keys().filter(|key| !held.contains_key(key)).map(|key| format!("{} is missing", key.1));
    let extra =
        held.keys().filter(|key| !expected.contains_key(key)).map(|key| format!("{} is too many", key.1));
    let changed = expected
        .iter()
        .filter(|(key, entry)| held.get(key).is_some_and(|other| other != *entry))
        .map(|(key, _)| format!("{} has other values", key.1));
    let mut all: Vec<String> = missing.chain(extra).chain(changed).collect();
    let count = all.len();
    all.truncate(5);
    format!("client {client}: {count} entries differ: {}", all.join(", "))
}

/// What each account must hold, given all entries and what each began with.
pub fn balances(entries: &BTreeMap<EntryKey, Entry>, accounts: i32, initial: i64) -> Vec<i64> {
    let mut balances = vec![initial; accounts as usize];
    for entry in entries.values() {
        balances[entry.source as usize - 1] -= entry.amount;
        balances[entry.target as usize - 1] += entry.amount;
    }
    balances
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(amount: i64) -> Entry {
        Entry { source: 1, target: 2, amount, tag: format!("tag {amount}") }
    }

    fn put(number: i32, amount: i64) -> Change {
        Change { put: vec![((3, number), entry(amount))], removed: Vec::new() }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(3);
        ledger.acknowledge(&put(1, 10));
        ledger.acknowledge(&put(2, 20));
        ledger
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let held = ledger().entries;
        assert_eq!(ledger().judge(held.clone()), Ok(false));
        let mut lost = held;
        lost.remove(&(3, 2));
        assert!(ledger().judge(lost).unwrap_err().contains("2 is missing"));
    }

    #[test]
    fn nothing_else_may_be_there() {
        let mut held = ledger().entries;
        put(9, 90).apply(&mut held);
        assert!(ledger().judge(held).unwrap_err().contains("9 is too many"));
        let mut held = ledger().entries;
        put(1, 11).apply(&mut held);
        assert!(ledger().judge(held).unwrap_err().contains("1 has other values"));
    }

    #[test]
    fn a_transaction_in_doubt_is_there_wholly_or_not_at_all() {
        let doubt = Change { put: vec![((3, 3), entry(30)), ((3, 4), entry(40))], removed: vec![(3, 1)] };
        let with_doubt = || Ledger { in_doubt: Some(doubt.clone()), ..ledger() };
        let without = ledger().entries;
        let mut with = without.clone();
        doubt.apply(&mut with);
        assert_eq!(with_doubt().judge(without), Ok(false));
        let mut after = with_doubt();
        assert_eq!(after.judge(with.clone()), Ok(true));
        assert_eq!(after.entries, with, "the ledger goes on from what is there");
        assert_eq!(after.in_doubt, None);
        let mut half = with;
        half.remove(&(3, 4));
        assert!(with_doubt().judge(half).is_err(), "half a transaction");
    }

    #[test]
    fn balances_follow_from_the_entries() {
        assert_eq!(balances(&ledger().entries, 3, 100), [70, 130, 100]);
    }
}
