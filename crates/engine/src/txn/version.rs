//! The committed versions of one key that are in memory, and the rule that says which of them may
//! go.
//!
//! A chain holds committed versions only, each with the commit sequence number (csn) that made it.
//! A reader with snapshot `s` wants the newest version with `csn <= s`; if the chain has none, the
//! base store has the answer, in the *view* that belongs to `s`: the newest view whose watermark is
//! `<= s`.
//!
//! # Which versions may go
//!
//! `Needs` says who may still read: the `active` snapshots, and every snapshot from `floor` on (one
//! that may yet be taken). A version is *asked for* by the snapshots from its own csn up to its
//! successor's.
//!
//! 1. A version nobody asks for goes.
//! 2. A version that some snapshots ask for goes if each of them finds it in its view of the base
//!    (`csn <=` the view's watermark), **and** no older version of the chain stays: otherwise its
//!    readers would find that older one here and never look further.
//!
//! ```text
//! chain   v9      v5   v2        active {3}, floor 7, views at 0 and 6
//!
//!   v2  asked for by 3; 3's view is the one at 0 and does not have it        stays
//!   v5  asked for by 7 and 8, whose view (6) has it, but v2 stays            stays
//!   v9  asked for by 9 and later                                             stays
//! reader 3 leaves:
//!   v2  nobody asks                                                          goes
//!   v5  asked for by 7 and 8, view 6 has it, nothing older stays             goes
//! ```

use crate::{Csn, Value};

/// Bytes that a version costs besides its value.
pub(crate) const VERSION_BYTES: usize = 64;

/// One committed version; `None` is a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) csn: Csn,
    pub(crate) value: Option<Value>,
}

impl Version {
    pub(crate) fn bytes(&self) -> usize {
        VERSION_BYTES + self.value.as_ref().map_or(0, Value::len)
    }
}

/// The versions of one key, at least one.
#[derive(Debug)]
pub(crate) struct Chain {
    newest: Version,
    /// Mostly there are none; then this is one word in the map's node.
    older: Option<Box<Older>>,
}

/// Oldest first, so that a commit appends.
#[derive(Debug, Default)]
struct Older(Vec<Version>);

/// Who may still read what; see the module's prose.
#[derive(Debug, Default, Clone)]
pub(crate) struct Needs {
    /// Active snapshots below `floor`, ascending.
    pub(crate) active: Vec<Csn>,
    /// Every snapshot from here on may be active or may yet be taken.
    pub(crate) floor: Csn,
    /// Watermarks of the base's views, ascending. The last belongs to every snapshot from `floor`
    /// on.
    pub(crate) views: Vec<Csn>,
}

impl Needs {
    fn view_of(&self, snapshot: Csn) -> Csn {
        match self.views.partition_point(|&w| w <= snapshot) {
            0 => 0,
            n => self.views[n - 1],
        }
    }

    /// Whether a version that lived from `csn` up to before `next` must stay in memory.
    fn judge(&self, csn: Csn, next: Csn, older_stays: bool) -> bool {
        let from = self.active.partition_point(|&s| s < csn);
        let to = self.active.partition_point(|&s| s < next);
        let asking = &self.active[from..to];
        let future = next > self.floor;
        if older_stays {
            return future || !asking.is_empty();
        }
        (future && self.views.last().copied().unwrap_or(0) < csn)
            || asking.iter().any(|&s| self.view_of(s) < csn)
    }
}

impl Chain {
    pub(crate) fn new(newest: Version) -> Chain {
        Chain { newest, older: None }
    }

    pub(crate) fn newest(&self) -> &Version {
        &self.newest
    }

    fn older(&self) -> &[Version] {
        self.older.as_ref().map_or(&[], |older| &older.0)
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.older().len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.newest.bytes() + self.older().iter().map(Version::bytes).sum::<usize>()
    }

    /// Of them, what was committed at or below `csn`.
    pub(crate) fn bytes_until(&self, csn: Csn) -> usize {
        let versions = self.older().iter().chain([&self.newest]);
        versions.filter(|version| version.csn <= csn).map(Version::bytes).sum()
    }

    /// The newest version at or below `snapshot`.
    #[inline]
    pub(crate) fn at(&self, snapshot: Csn) -> Option<&Version> {
        if self.newest.csn <= snapshot {
            return Some(&self.newest);
        }
        self.older().iter().rev().find(|v| v.csn <= snapshot)
    }

    /// Adds a newer version. A second version of the same commit replaces the first.
    pub(crate) fn push(&mut self, version: Version) {
        debug_assert!(version.csn >= self.newest.csn);
        if version.csn == self.newest.csn {
            self.newest = version;
        } else {
            let before = std::mem::replace(&mut self.newest, version);
            self.older.get_or_insert_default().0.push(before);
        }
    }

    /// Removes what nobody needs. True if nothing stays: the caller removes the key.
    pub(crate) fn trim(&mut self, needs: &Needs) -> bool {
        let mut stays = false;
        if let Some(older) = &mut self.older {
            let (older, newest) = (&mut older.0, self.newest.csn);
            let mut kept = 0;
            for i in 0..older.len() {
                let next = older.get(i + 1).map_or(newest, |v| v.csn);
                if needs.judge(older[i].csn, next, stays) {
                    older.swap(kept, i);
                    kept += 1;
                    stays = true;
                }
            }
            older.truncate(kept);
            if kept == 0 {
                self.older = None;
            } else if older.capacity() > 4 * older.len() {
                older.shrink_to(2 * kept);
            }
        }
        !stays && !needs.judge(self.newest.csn, Csn::MAX, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(csns: &[Csn]) -> Chain {
        let version = |csn: Csn| Version { csn, value: Some(Value::from(csn.to_string())) };
        let mut chain = Chain::new(version(csns[0]));
        for &csn in &csns[1..] {
            chain.push(version(csn));
        }
        chain
    }

    fn csns(chain: &Chain) -> Vec<Csn> {
        chain.older().iter().chain([&chain.newest]).map(|v| v.csn).collect()
    }

    #[test]
    fn the_history_of_the_prose() {
        let mut c = chain(&[2, 5, 9]);
        assert!(!c.trim(&Needs { active: vec![3], floor: 7, views: vec![0, 6] }));
        assert_eq!(csns(&c), [2, 5, 9]);
        assert!(!c.trim(&Needs { active: vec![], floor: 7, views: vec![0, 6] }));
        assert_eq!(csns(&c), [9]);
        assert!(c.trim(&Needs { active: vec![], floor: 9, views: vec![9] }));
    }

    #[test]
    fn versions_between_snapshots_go() {
        let mut c = chain(&[1, 3, 5, 9, 12]);
        c.trim(&Needs { active: vec![2], floor: 10, views: vec![0] });
        assert_eq!(csns(&c), [1, 9, 12]);
    }

    /// Every history up to a size: what a snapshot reads through memory and base never changes by a
    /// trim.
    #[test]
    fn trimming_is_invisible_to_every_reader() {
        const TOP: Csn = 7;
        for versions in 1u32..(1 << TOP) {
            let all: Vec<Csn> = (1..=TOP).filter(|c| versions & (1 << (c - 1)) != 0).collect();
            for floor in 0..=TOP {
                for active in 0u32..(1 << floor) {
                    for view in 0..=floor {
                        let active: Vec<Csn> = (0..floor).filter(|c| active & (1 << c) != 0).collect();
                        let needs = Needs { active: active.clone(), floor, views: vec![0, view] };
                        let mut c = chain(&all);
                        let gone = c.trim(&needs);
                        for s in active.into_iter().chain(floor..=TOP) {
                            let want = all.iter().rev().find(|&&c| c <= s).copied().unwrap_or(0);
                            let base = needs.view_of(s);
                            let in_base = all.iter().rev().find(|&&c| c <= base).copied().unwrap_or(0);
                            let got = if gone { None } else { c.at(s).map(|v| v.csn) };
                            assert_eq!(got.unwrap_or(in_base), want, "{all:?} {needs:?} at {s}");
                        }
                    }
                }
            }
        }
    }
}
