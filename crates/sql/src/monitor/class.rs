//! Classes of transactions: those that run the same statements, whatever their values.
//!
//! A transaction's class is made while its statements come. Each adds the fingerprint of its text,
//! which is a number that whoever keeps the statement may keep, too; one that was there before adds
//! nothing, so a loop is one class however often it goes round.
//!
//! ```text
//! UPDATE account SET balance = balance - 5 WHERE id = 1;
//! UPDATE account SET balance = balance - 7 WHERE id = 2;     the same fingerprint
//! INSERT INTO history VALUES (1, -5), (2, -7);
//!   class: UPDATE account SET balance = balance - ? WHERE id = ?; INSERT INTO history VALUES (?)
//! ```
//!
//! A transaction of too many different statements is of the class [`OTHERS`].

use std::sync::Arc;

use super::normal_form;

/// Different statements of a class.
const STATEMENTS_MAX: usize = 16;
/// Statements whose texts are kept, to be shown.
const SHOWN_MAX: usize = 4;
/// Bytes of a class as it is shown, about.
const SHOWN_BYTES: usize = 240;

/// The class of transactions that have none of their own.
pub(super) const OTHERS: u64 = 0;
/// How that is shown.
pub(super) const OTHERS_TEXT: &str = "(all others)";

/// What the texts of a statement have in common that differ in their values only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Reads the text once; about a nanosecond for each byte, and bounded for long texts.
    pub fn of(text: &str) -> Fingerprint {
        Fingerprint(normal_form::hash(text))
    }
}

/// The class of one transaction, as far as it has come. Nothing is allocated for it.
#[derive(Clone, Debug, Default)]
pub struct Class {
    seen: [u64; STATEMENTS_MAX],
    count: usize,
    /// There were more.
    is_varied: bool,
    texts: [Option<Arc<str>>; SHOWN_MAX],
}

impl Class {
    /// A transaction that has executed nothing yet.
    pub fn new() -> Class {
        Class::default()
    }

    /// The transaction executes this statement: one that reads or changes rows, or a CALL. Where it
    /// begins and ends, and its settings, do not count.
    pub fn add(&mut self, fingerprint: Fingerprint, text: &Arc<str>) {
        if self.is_varied || self.seen[..self.count].contains(&fingerprint.0) {
            return;
        }
        let Some(place) = self.seen.get_mut(self.count) else {
            self.is_varied = true;
            return;
        };
        *place = fingerprint.0;
        if let Some(place) = self.texts.get_mut(self.count) {
            *place = Some(text.clone());
        }
        self.count += 1;
    }

    /// What it is known by. The order in which statements came first counts.
    pub fn id(&self) -> u64 {
        if self.is_varied || self.count == 0 {
            return OTHERS;
        }
        self.seen[..self.count].iter().fold(0, |id, &seen| normal_form::mixed(id ^ seen))
    }

    /// The statements in their normal form, cut.
    pub(super) fn text(&self) -> String {
        if self.id() == OTHERS {
            return OTHERS_TEXT.to_owned();
        }
        let mut shown = String::new();
        for text in self.texts.iter().flatten() {
            if !shown.is_empty() {
                shown.push_str("; ");
            }
            let room = SHOWN_BYTES.saturating_sub(shown.len());
            shown.push_str(&normal_form::spelled(text, room));
        }
        if self.count > SHOWN_MAX {
            shown.push_str(&format!("; and {} more", self.count - SHOWN_MAX));
        }
        shown.shrink_to_fit();
        shown
    }
}
