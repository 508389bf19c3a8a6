//! Sets of characters, and the colors that a pattern divides all characters into.
//!
//! Two characters have the same color if no set of the pattern tells them apart; so an automaton
//! needs one transition for each color, and `[a-z]+\d` has three colors, whatever Unicode holds.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Sorted ranges, both ends inclusive, with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set(Vec<(u32, u32)>);

/// The largest code point.
const LAST: u32 = 0x10_ffff;

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

    /// Takes in another set.
    pub(super) fn add(&mut self, other: &Set) {
        self.0.extend_from_slice(&other.0);
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
        let mut others: Vec<u32> = Vec::new();
        for &(first, last) in &self.0 {
            for c in (first..=last).filter_map(char::from_u32) {
                others.extend([super::lower(c) as u32, super::upper(c) as u32]);
            }
        }
        others.sort_unstable();
        others.dedup();
        let mut set = self.clone();
        set.add(&Set(others.into_iter().map(|c| (c, c)).collect()));
        set
    }
}

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
    pub(super) fn new(sets: &[Set]) -> Colors {
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
        for &start in &starts {
            let mut signature = Vec::with_capacity(sets.len());
            for (set, place) in sets.iter().zip(&mut places) {
                while set.0.get(*place).is_some_and(|range| range.1 < start) {
                    *place += 1;
                }
                signature.push(set.0.get(*place).is_some_and(|range| range.0 <= start));
            }
            let next = colors.len() as u16;
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
        found
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
