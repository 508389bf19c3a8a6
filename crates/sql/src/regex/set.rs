//! Sets of characters, and the colors that a pattern divides all characters into.
//!
//! Two characters have the same color if no set of the pattern tells them apart; so an automaton
//! needs one transition for each color, and `[a-z]+\d` has three colors, whatever Unicode holds.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Failure;
use crate::error::SqlError;
use crate::types::bounds::{PIECE, ask};

/// Sorted ranges, both ends inclusive, with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set(Vec<(u32, u32)>);

/// The largest code point.
const LAST: u32 = 0x10_ffff;

/// No character behind this one has another case.
const LAST_CASED: char = '\u{1ffff}';

/// Characters that have another case, each with that other one, in their order.
static CASES: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let cases = |c: char| [super::lower(c), super::upper(c)].map(|other| (c as u32, other as u32));
    ('\0'..=LAST_CASED).flat_map(cases).filter(|(c, other)| c != other).collect()
});

/// A named class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Alnum,
    Alpha,
    Ascii,
    Blank,
    Cntrl,
    Digit,
    Graph,
    Lower,
    Print,
    Punct,
    Space,
    Upper,
    Xdigit,
    Word,
}

impl Class {
    pub(super) fn named(name: &str) -> Option<Class> {
        Some(match name {
            "alnum" => Class::Alnum,
            "alpha" => Class::Alpha,
            "ascii" => Class::Ascii,
            "blank" => Class::Blank,
            "cntrl" => Class::Cntrl,
            "digit" => Class::Digit,
            "graph" => Class::Graph,
            "lower" => Class::Lower,
            "print" => Class::Print,
            "punct" => Class::Punct,
            "space" => Class::Space,
            "upper" => Class::Upper,
            "xdigit" => Class::Xdigit,
            "word" => Class::Word,
            _ => return None,
        })
    }

    fn holds(self, c: char) -> bool {
        let is_space = || c.is_whitespace() && !matches!(c, '\u{a0}' | '\u{2007}' | '\u{202f}' | '\u{85}');
        match self {
            Class::Alnum => c.is_alphanumeric(),
            Class::Alpha => c.is_alphabetic(),
            Class::Graph => !c.is_control() && !is_space(),
            Class::Lower => c.is_lowercase(),
            Class::Print => !c.is_control(),
            Class::Punct => !c.is_control() && !is_space() && !c.is_alphanumeric(),
            Class::Space => is_space(),
            Class::Upper => c.is_uppercase(),
            Class::Word => c.is_alphanumeric() || c == '_',
            _ => false,
        }
    }

    /// The characters of the class; letters of either case are the same where case is ignored.
    pub(super) fn set(self, ignore_case: bool) -> Set {
        type Cache = LazyLock<[Set; 9]>;
        const SCANNED: [Class; 9] = [
            Class::Alnum,
            Class::Alpha,
            Class::Graph,
            Class::Lower,
            Class::Print,
            Class::Punct,
            Class::Space,
            Class::Upper,
            Class::Word,
        ];
        static SETS: Cache = LazyLock::new(|| SCANNED.map(Set::of_class));
        let class = match self {
            Class::Lower | Class::Upper if ignore_case => Class::Alpha,
            other => other,
        };
        match class {
            Class::Ascii => Set::range(0, 0x7f),
            Class::Blank => Set::of(&[('\t', '\t'), (' ', ' ')]),
            Class::Cntrl => Set::of(&[('\0', '\x1f'), ('\x7f', '\u{9f}')]),
            Class::Digit => Set::of(&[('0', '9')]),
            Class::Xdigit => Set::of(&[('0', '9'), ('A', 'F'), ('a', 'f')]),
            scanned => {
                SCANNED.iter().position(|c| *c == scanned).map(|i| SETS[i].clone()).unwrap_or_default()
            }
        }
    }
}

impl Set {
    pub(super) fn range(first: u32, last: u32) -> Set {
        Set(vec![(first, last)])
    }

    pub(super) fn all() -> Set {
        Set::range(0, LAST)
    }

    pub(super) fn single(c: char) -> Set {
        Set::range(c as u32, c as u32)
    }

    fn of(ranges: &[(char, char)]) -> Set {
        Set(ranges.iter().map(|(a, b)| (*a as u32, *b as u32)).collect())
    }

    fn of_class(class: Class) -> Set {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for c in ('\0'..=char::MAX).filter(|c| class.holds(*c)) {
            let code = c as u32;
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == code => last.1 = code,
                _ => ranges.push((code, code)),
            }
        }
        Set(ranges)
    }

    /// How many ranges it has.
    pub(super) fn ranges(&self) -> usize {
        self.0.len()
    }

    /// Brings ranges into order that were put together.
    fn merge(&mut self) {
        self.0.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(self.0.len());
        for &(first, last) in &self.0 {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }

    pub(super) fn complement(&self) -> Set {
        let mut out = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(first, last) in &self.0 {
            if first > next {
                out.push((next, first - 1));
            }
            next = last + 1;
        }
        if next <= LAST {
            out.push((next, LAST));
        }
        Set(out)
    }

    /// With the other cases of its characters.
    pub(super) fn ignoring_case(&self) -> Set {
        let mut set = self.clone();
        for &(first, last) in &self.0 {
            let from = CASES.partition_point(|(c, _)| *c < first);
            let within = CASES[from..].iter().take_while(|(c, _)| *c <= last);
            set.0.extend(within.map(|(_, other)| (*other, *other)));
        }
        set.merge();
        set
    }
}

/// So many ranges are put together before they are brought into order.
const FEW_RANGES: usize = 4096;

/// A set that grows part by part. It is brought into order whenever it has doubled, so that a
/// thousand parts do not cost the square of that.
#[derive(Debug, Default)]
pub(super) struct Growing {
    set: Set,
    ordered: usize,
}

impl Growing {
    /// Takes in another set.
    pub(super) fn add(&mut self, other: &Set) {
        self.set.0.extend_from_slice(&other.0);
        if self.set.0.len() > FEW_RANGES.max(2 * self.ordered) {
            self.set.merge();
            self.ordered = self.set.0.len();
        }
    }

    pub(super) fn finish(mut self) -> Set {
        self.set.merge();
        self.set
    }
}

/// Most entries of the table which colors each set has.
const MAX_MEMBERS: usize = 1 << 25;

/// Which color each character has, and which colors each set has.
#[derive(Debug)]
pub(super) struct Colors {
    ascii: [u16; 128],
    /// First code points of intervals of one color, ascending, from 0.
    starts: Vec<u32>,
    of_interval: Vec<u16>,
    pub(super) count: usize,
    /// For each set, for each color, whether the set has it.
    members: Vec<Vec<bool>>,
}

impl Colors {
    /// 2201B if there are too many of them.
    pub(super) fn new(sets: &[Set]) -> Result<Colors, SqlError> {
        let mut starts: Vec<u32> = vec![0];
        for &(first, last) in sets.iter().flat_map(|set| &set.0) {
            starts.push(first);
            if last < LAST {
                starts.push(last + 1);
            }
        }
        starts.sort_unstable();
        starts.dedup();
        let mut colors: HashMap<Vec<bool>, u16> = HashMap::new();
        let mut places = vec![0usize; sets.len()];
        let mut of_interval = Vec::with_capacity(starts.len());
        let mut unasked = 0;
        for &start in &starts {
            unasked += sets.len();
            if unasked >= PIECE {
                unasked = 0;
                ask()?;
            }
            let mut signature = Vec::with_capacity(sets.len());
            for (set, place) in sets.iter().zip(&mut places) {
                while set.0.get(*place).is_some_and(|range| range.1 < start) {
                    *place += 1;
                }
                signature.push(set.0.get(*place).is_some_and(|range| range.0 <= start));
            }
            let next = u16::try_from(colors.len()).ok();
            let next = next.filter(|next| usize::from(*next) * sets.len() <= MAX_MEMBERS);
            let next = next.ok_or(Failure::TOO_COMPLEX)?;
            of_interval.push(*colors.entry(signature).or_insert(next));
        }
        let count = colors.len();
        let mut members = vec![vec![false; count]; sets.len()];
        for (signature, color) in &colors {
            for (set, has) in signature.iter().enumerate() {
                members[set][usize::from(*color)] = *has;
            }
        }
        let mut found = Colors { ascii: [0; 128], starts, of_interval, count, members };
        for code in 0..128u32 {
            found.ascii[code as usize] = found.search(code);
        }
        Ok(found)
    }

    fn search(&self, code: u32) -> u16 {
        let after = self.starts.partition_point(|start| *start <= code);
        self.of_interval[after - 1]
    }

    /// The color of a character.
    #[inline]
    pub(super) fn of(&self, c: char) -> u16 {
        match self.ascii.get(c as usize) {
            Some(color) => *color,
            None => self.search(c as u32),
        }
    }

    /// Whether a set has the characters of a color.
    #[inline]
    pub(super) fn has(&self, set: usize, color: u16) -> bool {
        self.members[set][usize::from(color)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_cases_are_those_of_each_character() {
        for (first, last) in [(0, 0x7f), (0x80, 0x24f), (0x370, 0x587), (0x1c4, 0x1cc), (0x10400, 0x10450)] {
            let found = Set::range(first, last).ignoring_case();
            let mut wanted = Growing::default();
            for c in (first..=last).filter_map(char::from_u32) {
                for c in [c, super::super::lower(c), super::super::upper(c)] {
                    wanted.add(&Set::single(c));
                }
            }
            assert_eq!(found, wanted.finish(), "{first:x} to {last:x}");
        }
        let has_case = |c: &char| super::super::lower(*c) != *c || super::super::upper(*c) != *c;
        assert_eq!((LAST_CASED..=char::MAX).find(has_case), None);
    }

    #[test]
    fn a_set_that_grows_is_the_union_of_its_parts() {
        let mut growing = Growing::default();
        for code in (0..3 * FEW_RANGES as u32).rev() {
            growing.add(&Set::range(2 * code, 2 * code));
            growing.add(&Set::range(2 * code, 2 * code));
        }
        let set = growing.finish();
        assert_eq!(set.ranges(), 3 * FEW_RANGES);
        assert_eq!(set.complement().complement(), set);
    }
}
