//! What a setting is, and finding one by its name. `table` lists them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Access;
use super::table::{Row, TABLE};

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    /// `on` or `off`.
    Bool,
    /// A whole number, in `unit`.
    Integer { minimum: i64, maximum: i64, unit: Unit },
    /// A number.
    Real { minimum: f64, maximum: f64 },
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Any text.
    Text,
    /// PostgreSQL has more values, but only this one is supported: another answers 0A000.
    Only(&'static str),
    /// A list of identifiers.
    Names,
    /// A time zone.
    TimeZone,
    /// An order of year, month and day (the style is always ISO).
    DateStyle,
    /// A client encoding: UTF8.
    Encoding,
}

/// Unit of an integer setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    None,
    /// ms.
    Milliseconds,
    /// s.
    Seconds,
    /// B.
    Bytes,
    /// kB.
    Kilobytes,
    /// 8 kB.
    Blocks,
    /// MB.
    Megabytes,
}

impl Unit {
    /// The unit in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::Kilobytes => "kB",
            Unit::Blocks => "8kB",
            Unit::Megabytes => "MB",
        }
    }

    /// Units it may be given in and printed in, largest first, with their size in microseconds or
    /// bytes.
    pub(super) fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            Unit::None => &[],
            Unit::Milliseconds | Unit::Seconds => {
                &[("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("us", 1.0)]
            }
            Unit::Bytes | Unit::Kilobytes | Unit::Blocks | Unit::Megabytes => &[
                ("TB", 1_099_511_627_776.0),
                ("GB", 1_073_741_824.0),
                ("MB", 1_048_576.0),
                ("kB", 1024.0),
                ("B", 1.0),
            ],
        }
    }

    fn base(self) -> f64 {
        match self {
            Unit::None | Unit::Bytes => 1.0,
            Unit::Milliseconds => 1e3,
            Unit::Seconds => 1e6,
            Unit::Kilobytes => 1024.0,
            Unit::Blocks => 8192.0,
            Unit::Megabytes => 1_048_576.0,
        }
    }

    /// How many of this unit one of `suffix` is.
    pub(crate) fn factor(self, suffix: &str) -> Option<f64> {
        self.suffixes().iter().find(|(name, _)| *name == suffix).map(|(_, size)| size / self.base())
    }

    /// The HINT that lists the suffixes.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Unit::Milliseconds | Unit::Seconds => {
                "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\"."
            }
            _ => "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
        }
    }

    /// A number of this unit in the largest unit that divides it.
    pub(super) fn display(self, number: i64) -> String {
        let size = number as f64 * self.base();
        match self.suffixes().iter().find(|(_, unit)| size % unit == 0.0) {
            Some((name, unit)) if number > 0 => format!("{}{name}", (size / unit) as i64),
            _ => number.to_string(),
        }
    }
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Definition {
    /// Canonical name.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The built-in default, in normal form.
    pub default: &'static str,
    /// Who may change it.
    pub access: Access,
    /// Told to the client when it changes.
    pub report: bool,
}

impl Definition {
    /// RESET ALL leaves it alone.
    pub(super) fn keep_on_reset(&self) -> bool {
        matches!(
            self.name,
            "role" | "seed" | "transaction_isolation" | "transaction_read_only" | "transaction_deferrable"
        )
    }
}

static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let definition =
        |&(name, kind, default, access, report): &Row| Definition { name, kind, default, access, report };
    TABLE.iter().map(definition).collect()
});

static BY_NAME: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    DEFINITIONS
        .iter()
        .enumerate()
        .map(|(index, definition)| (definition.name.to_ascii_lowercase(), index))
        .collect()
});

/// All settings.
pub fn all() -> &'static [Definition] {
    &DEFINITIONS
}

/// The place of a setting in [`all`], by its name in any case.
pub(super) fn find(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    let name = if name == "time zone" { "timezone" } else { &name };
    BY_NAME.get(name).copied()
}
