//! Names of objects: qualification, and the names that PostgreSQL makes up for constraints and
//! sequences.

use sqlparser::ast::{ObjectName, ObjectNamePart};

use crate::catalog::Catalog;
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{MAX_NAME, cut, fold};

/// A possibly qualified name of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qualified {
    /// It is to be the one that the session is in: see [`Work::require_usage`].
    ///
    /// [`Work::require_usage`]: crate::session::work::Work::require_usage
    pub(crate) database: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl Qualified {
    /// `[[database.]schema.]name`.
    pub(crate) fn from_object_name(name: &ObjectName) -> Result<Qualified> {
        let parts = parts(name)?;
        match parts.as_slice() {
            [name] => Ok(Qualified::plain(name)),
            [schema, name] => Ok(Qualified::within(schema, name)),
            [database, schema, name] => {
                Ok(Qualified { database: Some(database.clone()), ..Qualified::within(schema, name) })
            }
            _ => Err(SqlError::syntax(format!("improper qualified name (too many dotted names): {name}"))),
        }
    }

    /// A name without a schema.
    pub(crate) fn plain(name: &str) -> Qualified {
        Qualified { database: None, schema: None, name: name.to_owned() }
    }

    /// A name in a schema.
    pub(crate) fn within(schema: &str, name: &str) -> Qualified {
        Qualified { schema: Some(schema.to_owned()), ..Qualified::plain(name) }
    }

    /// 0A000 if it names another database than that of this catalog.
    pub(crate) fn check_database(&self, catalog: &Catalog) -> Result<()> {
        match self.database.as_deref().filter(|database| !catalog.is_own_name(database)) {
            Some(database) => Err(cross_database(&format!("\"{database}.{}\"", self.display()))),
            None => Ok(()),
        }
    }

    /// As messages print it.
    pub(crate) fn display(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// 0A000 for a name in another database.
pub(crate) fn cross_database(shown: &str) -> SqlError {
    let message = format!("cross-database references are not implemented: {shown}");
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
}

/// The folded parts of a dotted name.
pub(crate) fn parts(name: &ObjectName) -> Result<Vec<String>> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(fold(ident)),
            ObjectNamePart::Function(_) => Err(SqlError::syntax(format!("improper name: {name}"))),
        })
        .collect()
}

/// A name that must be a single identifier.
pub(crate) fn single(name: &ObjectName) -> Result<String> {
    match parts(name)?.as_slice() {
        [name] => Ok(name.clone()),
        _ => Err(SqlError::new(sqlstate::SYNTAX_ERROR, format!("improper name: {name}"))),
    }
}

/// `base_columns_label`, shortened where it is longest until it fits, then numbered until it is not
/// `taken`.
pub(crate) fn make_up(base: &str, middle: &str, label: &str, taken: impl Fn(&str) -> bool) -> String {
    for number in 0.. {
        let label = if number == 0 { label.to_owned() } else { format!("{label}{number}") };
        let name = join(base, middle, &label);
        if !taken(&name) {
            return name;
        }
    }
    unreachable!("some number is free")
}

/// A name with the number that makes it differ from others.
pub(super) fn unique_name(taken: &[String], name: &str) -> String {
    let mut unique = name.to_owned();
    let mut number = 0;
    while taken.contains(&unique) {
        number += 1;
        let digits = number.to_string();
        unique = name.to_owned();
        cut(&mut unique, MAX_NAME - digits.len());
        unique.push_str(&digits);
    }
    unique
}

fn join(base: &str, middle: &str, label: &str) -> String {
    let overhead = label.len() + 1 + usize::from(!middle.is_empty());
    let available = MAX_NAME - overhead;
    let (mut base_bytes, mut middle_bytes) = (base.len(), middle.len());
    while base_bytes + middle_bytes > available {
        let longer = if base_bytes > middle_bytes { &mut base_bytes } else { &mut middle_bytes };
        *longer -= 1;
    }
    // Bytes are shared out first, as in PostgreSQL, and characters kept whole afterwards.
    let (mut base, mut middle) = (base.to_owned(), middle.to_owned());
    cut(&mut base, base_bytes);
    cut(&mut middle, middle_bytes);
    if middle.is_empty() { format!("{base}_{label}") } else { format!("{base}_{middle}_{label}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_fit_and_are_free() {
        assert_eq!(make_up("t", "", "pkey", |_| false), "t_pkey");
        assert_eq!(make_up("t", "a", "check", |name| name == "t_a_check"), "t_a_check1");
        let long = "x".repeat(60);
        let name = make_up(&long, "column", "key", |_| false);
        assert_eq!(name.len(), 63);
        assert!(name.ends_with("_column_key"));
        // 57 bytes for both parts: 29 and 28, and half a character is none.
        let name = make_up(&"\u{e4}".repeat(26), &"\u{f6}".repeat(26), "fkey", |_| false);
        assert_eq!(name, format!("{}_{}_fkey", "\u{e4}".repeat(14), "\u{f6}".repeat(14)));
        let name = make_up(&"\u{e4}".repeat(26), &"x".repeat(60), "fkey", |_| false);
        assert_eq!(name, format!("{}_{}_fkey", "\u{e4}".repeat(14), "x".repeat(28)));
    }
}
