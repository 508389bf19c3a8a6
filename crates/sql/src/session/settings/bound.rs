//! What the settings of a session may take.
//!
//! Those that no part of the server knows are as many, and as long, as their client makes them, and
//! stay as long as the session does. So there are bounds for each session. What is kept of settings
//! for a savepoint is counted here, too.

use std::sync::Arc;

use super::{Mark, State};
use crate::error::{Result, SqlError, sqlstate};

/// Bytes of one value, whatever the setting.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of all that no part of the server knows, with their names.
const CUSTOM_BYTES_MAX: usize = 1 << 20;
/// So many of those.
const CUSTOM_MAX: usize = 1000;
/// What a setting takes beside its texts, about.
const ENTRY_BYTES: usize = 64;

impl State {
    /// 54000 if there is no room for a setting of this name with this value.
    pub(super) fn check_room(&self, name: &str, value: &str) -> Result<()> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(too_much(format!("The value of \"{name}\" takes {} kB.", value.len() >> 10)));
        }
        if !name.contains('.') {
            return Ok(());
        }
        let name = name.to_ascii_lowercase();
        let all = self.custom.iter().chain(&self.custom_local).filter(|(known, _)| **known != name);
        let (mut number, mut bytes) = (1, name.len() + value.len());
        for (known, value) in all {
            number += 1;
            bytes += known.len() + value.len();
        }
        if number > CUSTOM_MAX || bytes > CUSTOM_BYTES_MAX {
            return Err(too_much(format!(
                "A session may have {CUSTOM_MAX} that the server does not know, of {} kB together.",
                CUSTOM_BYTES_MAX >> 10
            )));
        }
        Ok(())
    }

    /// About what it takes, beside values that others have, too.
    fn bytes(&self) -> usize {
        let custom = self.custom.keys().chain(self.custom_local.keys());
        let others = self.session.len() + self.local.len() + self.roles.len() + self.local_roles.len();
        custom.map(|name| name.len() + ENTRY_BYTES).sum::<usize>() + others * size_of::<&str>()
    }
}

impl Mark {
    /// About what it takes beside another one.
    pub(crate) fn bytes_beside(&self, other: Option<&Mark>) -> usize {
        let is_same = other.is_some_and(|other| Arc::ptr_eq(&self.0, &other.0));
        if is_same { 0 } else { self.0.bytes() }
    }
}

fn too_much(detail: String) -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "settings are too large").with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), &'static str> {
        settings.set(name, Some(value), false).map_err(|error| error.sqlstate)
    }

    #[test]
    fn there_are_so_many_settings_that_nobody_knows_and_no_more() {
        let mut settings = Settings::new();
        for number in 0..CUSTOM_MAX {
            settings.set(&format!("my.s{number}"), Some("x"), number % 2 == 0).expect("room");
        }
        assert_eq!(set(&mut settings, "my.other", "x"), Err("54000"));
        assert_eq!(set(&mut settings, "My.S7", "y"), Ok(()));
        assert_eq!(settings.show("my.s7").expect("a value"), "y");
    }

    #[test]
    fn their_values_take_so_much_and_no_more() {
        let mut settings = Settings::new();
        let half = "x".repeat(CUSTOM_BYTES_MAX / 2);
        for name in ["my.a", "MY.A"] {
            assert_eq!(set(&mut settings, name, &half), Ok(()), "{name}");
        }
        assert_eq!(set(&mut settings, "my.b", &half), Err("54000"));
        assert_eq!(set(&mut settings, "my.a", ""), Ok(()));
        assert_eq!(set(&mut settings, "my.b", &half), Ok(()));
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        assert_eq!(set(&mut settings, "search_path", &long), Err("54000"));
    }

    #[test]
    fn a_mark_takes_nothing_beside_one_of_the_same_state() {
        let mut settings = Settings::new();
        let first = settings.mark();
        assert_eq!(settings.mark().bytes_beside(Some(&first)), 0);
        assert_eq!(set(&mut settings, "my.a", "x"), Ok(()));
        assert!(settings.mark().bytes_beside(Some(&first)) > first.bytes_beside(None));
    }
}
