//! Settings: `SET`, `SHOW`, `RESET` and what they do to a session.
//!
//! A value is checked and brought to its normal form when it is set, so whoever reads it need not
//! check again. SET is transactional: [`Settings::mark`] takes a state (one `Arc`), and rolling
//! back puts it back. SET LOCAL lies over SET's value until the transaction ends.
//!
//! What the executor reads often is kept decoded in [`Effective`], rebuilt when a setting changes.

mod access;
mod acting;
mod bound;
mod definition;
mod effective;
mod origin;
mod table;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use access::Access;
pub use definition::{Definition, Kind, Unit, all as definitions};
pub use effective::Effective;
pub use origin::Origin;
pub(crate) use value::parse_bool;

use crate::catalog::Oid;
use crate::error::{Result, SqlError, sqlstate};

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct Settings {
    state: Arc<State>,
    defaults: Arc<Defaults>,
    effective: Arc<Effective>,
    /// Values last told to the client, by definition.
    reported: Vec<Option<Arc<str>>>,
    /// A setting may have changed since.
    is_unreported: bool,
}

/// What RESET goes back to, and where that comes from.
#[derive(Clone, Debug)]
struct Defaults {
    values: Vec<Arc<str>>,
    origins: Vec<Origin>,
    custom: BTreeMap<String, (Arc<str>, Origin)>,
}

/// All values at one moment.
#[derive(Clone, Debug)]
struct State {
    session: Vec<Arc<str>>,
    local: BTreeMap<usize, Arc<str>>,
    /// Settings with a dot in their name that no part of the server knows.
    custom: BTreeMap<String, Arc<str>>,
    custom_local: BTreeMap<String, Arc<str>>,
    /// The roles that settings name, by their oids: a name may become another role's.
    roles: BTreeMap<usize, Oid>,
    local_roles: BTreeMap<usize, Oid>,
    /// A procedure runs with its owner's rights.
    acting: bool,
}

/// A state to go back to. Cheap.
#[derive(Clone, Debug)]
pub struct Mark(Arc<State>);

/// A setting's place: a known one, or a name with a dot.
enum Place {
    Known(usize),
    Custom(String),
}

fn place(name: &str) -> Result<Place> {
    if let Some(index) = definition::find(name) {
        return Ok(Place::Known(index));
    }
    let name = name.to_ascii_lowercase();
    match name.split_once('.') {
        Some((prefix, rest)) if prefix != "cognate" && !prefix.is_empty() && !rest.is_empty() => {
            Ok(Place::Custom(name))
        }
        _ => Err(unrecognized(&name)),
    }
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// Whether no part of the server knows the setting, and it may still be set.
pub(super) fn is_custom(name: &str) -> bool {
    matches!(place(name), Ok(Place::Custom(_)))
}

/// Whether only superusers may set it. Before there are roles whoever gets in may, but for what
/// leaves out checks.
pub(super) fn is_superusers(name: &str, has_roles: bool) -> bool {
    let is_theirs = |index: usize| {
        let definition = &definition::all()[index];
        definition.access == Access::Superuser && (has_roles || definition.name == "session_replication_role")
    };
    definition::find(name).is_some_and(is_theirs)
}

/// A setting of an amount of memory, checked, in kB. 22023.
pub(super) fn whole_number(name: &str, text: &str) -> Result<u64> {
    let Some(index) = definition::find(name) else { return Err(unrecognized(name)) };
    let definition = &definition::all()[index];
    let value = value::normalize(definition, text, definition.default)?;
    value.parse().map_err(|_| unrecognized(name))
}

impl Settings {
    /// The built-in defaults.
    pub fn new() -> Settings {
        let values: Vec<Arc<str>> = definition::all().iter().map(|d| Arc::from(d.default)).collect();
        let state = State {
            session: values.clone(),
            local: BTreeMap::new(),
            custom: BTreeMap::new(),
            custom_local: BTreeMap::new(),
            roles: BTreeMap::new(),
            local_roles: BTreeMap::new(),
            acting: false,
        };
        let origins = vec![Origin::BuiltIn; values.len()];
        let defaults = Defaults { values, origins, custom: BTreeMap::new() };
        let mut settings = Settings {
            state: Arc::new(state),
            defaults: Arc::new(defaults),
            effective: Arc::new(Effective::default()),
            reported: vec![None; definition::all().len()],
            is_unreported: true,
        };
        settings.refresh();
        settings
    }

    /// An option of the startup packet, or a stored one: [`Settings::set_default`] of what a
    /// session may set. 55P02, too.
    pub fn set_option(&mut self, name: &str, text: &str, origin: Origin) -> Result<()> {
        if let Place::Known(index) = place(name)? {
            check_access(&definition::all()[index])?;
        }
        self.set_default(name, text, origin)
    }

    /// Sets what RESET goes back to, and the value with it: for options, and for facts about the
    /// session. A value that is there from a stronger origin stays; this one is checked all the
    /// same.
    pub fn set_default(&mut self, name: &str, text: &str, origin: Origin) -> Result<()> {
        if self.put_default(name, text, origin)? {
            self.refresh();
        }
        Ok(())
    }

    /// As [`Settings::set_default`], for a fact about the session that is neither in [`Effective`]
    /// nor told to the client: it may change with every transaction, and nothing else does.
    pub(crate) fn set_fact(&mut self, name: &str, text: &str) -> Result<()> {
        self.put_default(name, text, Origin::Fact).map(drop)
    }

    /// Says whether the value counts.
    fn put_default(&mut self, name: &str, text: &str, origin: Origin) -> Result<bool> {
        match place(name)? {
            Place::Known(index) => {
                let definition = &definition::all()[index];
                check_scope(definition)?;
                let value: Arc<str> = value::normalize(definition, text, self.raw(index))?.into();
                if self.defaults.origins[index] > origin {
                    return Ok(false);
                }
                let defaults = Arc::make_mut(&mut self.defaults);
                (defaults.values[index], defaults.origins[index]) = (value.clone(), origin);
                Arc::make_mut(&mut self.state).session[index] = value;
            }
            Place::Custom(name) => {
                if self.defaults.custom.get(&name).is_some_and(|(_, known)| *known > origin) {
                    return Ok(false);
                }
                let value: Arc<str> = text.into();
                Arc::make_mut(&mut self.defaults).custom.insert(name.clone(), (value.clone(), origin));
                Arc::make_mut(&mut self.state).custom.insert(name, value);
            }
        }
        Ok(true)
    }

    /// Checks a value that sessions are to begin with: the setting's canonical name, and the value
    /// as it is stored. 42704, 22023, 55P02, 0A000.
    pub fn storable(&self, name: &str, text: &str) -> Result<(String, String)> {
        match place(name)? {
            Place::Known(index) => {
                let definition = &definition::all()[index];
                check_access(definition)?;
                check_scope(definition)?;
                if definition.name.starts_with("transaction_") {
                    return Err(SqlError::new(
                        sqlstate::CANT_CHANGE_RUNTIME_PARAM,
                        format!("parameter \"{}\" is a transaction's", definition.name),
                    )
                    .with_hint(format!("Sessions begin with \"default_{}\".", definition.name)));
                }
                let normal = value::normalize(definition, text, self.raw(index))?;
                let is_list = definition.kind == Kind::Names;
                let value = if is_list { normal } else { text.to_owned() };
                Ok((definition.name.to_owned(), value))
            }
            Place::Custom(name) => Ok((name, text.to_owned())),
        }
    }

    /// Where the present value of a known setting comes from, in the words of `pg_settings`, and
    /// what RESET would make of it, in its normal form.
    pub fn source(&self, name: &str) -> Option<(&'static str, &str)> {
        let index = definition::find(name)?;
        let reset = &self.defaults.values[index];
        let value = self.state.local.get(&index).unwrap_or(&self.state.session[index]);
        // RESET shares the value; SET makes one of its own, be it equal.
        let is_set = !Arc::ptr_eq(value, reset);
        Some((if is_set { "session" } else { self.defaults.origins[index].word() }, &**reset))
    }

    /// SET or SET LOCAL; `None` is DEFAULT. 42704, 22023, 55P02, 0A000.
    pub fn set(&mut self, name: &str, text: Option<&str>, local: bool) -> Result<()> {
        self.state.check_room(name, text.unwrap_or_default())?;
        match place(name)? {
            Place::Known(index) => {
                let definition = &definition::all()[index];
                check_access(definition)?;
                let value = match text {
                    Some(text) => value::normalize(definition, text, self.raw(index))?.into(),
                    None => self.defaults.values[index].clone(),
                };
                let state = Arc::make_mut(&mut self.state);
                if local {
                    state.local.insert(index, value);
                } else {
                    state.local.remove(&index);
                    state.session[index] = value;
                }
                self.refresh();
            }
            Place::Custom(name) => {
                let value = text.map_or_else(|| self.defaults.custom(&name), Arc::from);
                let state = Arc::make_mut(&mut self.state);
                if local {
                    state.custom_local.insert(name, value);
                } else {
                    // What SET LOCAL has put over it ends here.
                    state.custom_local.remove(&name);
                    state.custom.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// The role that a setting names, unless it is that of the connection.
    fn role(&self, name: &str) -> Option<Oid> {
        let index = definition::find(name)?;
        let is_local = self.state.local.contains_key(&index);
        let roles = if is_local { &self.state.local_roles } else { &self.state.roles };
        roles.get(&index).copied()
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        let state = Arc::make_mut(&mut self.state);
        for (index, definition) in definition::all().iter().enumerate() {
            let is_session = matches!(definition.access, Access::User | Access::Superuser);
            if is_session && !definition.keep_on_reset() {
                state.session[index] = self.defaults.values[index].clone();
                state.local.remove(&index);
            }
        }
        for (name, value) in &mut state.custom {
            *value = self.defaults.custom(name);
        }
        let ended = std::mem::take(&mut state.custom_local);
        self.keep_names(ended.keys());
        self.refresh();
    }

    /// The value as SHOW prints it. 42704.
    pub fn show(&self, name: &str) -> Result<String> {
        match place(name)? {
            Place::Known(index) => Ok(value::display(&definition::all()[index], self.raw(index))),
            Place::Custom(name) => {
                let value = self.state.custom_local.get(&name).or_else(|| self.state.custom.get(&name));
                value.map(|value| value.to_string()).ok_or_else(|| unrecognized(&name))
            }
        }
    }

    /// The name in its canonical spelling (`TimeZone`). 42704.
    pub fn canonical_name(&self, name: &str) -> Result<String> {
        Ok(match place(name)? {
            Place::Known(index) => definition::all()[index].name.to_owned(),
            Place::Custom(name) => name,
        })
    }

    /// Every setting with the value SHOW prints, by name.
    pub fn all(&self) -> Vec<(&'static Definition, String)> {
        let mut all: Vec<_> = definition::all()
            .iter()
            .enumerate()
            .filter(|(_, definition)| definition.access != Access::Hidden)
            .map(|(index, definition)| (definition, value::display(definition, self.raw(index))))
            .collect();
        all.sort_by_key(|(definition, _)| definition.name.to_ascii_lowercase());
        all
    }

    /// What the executor reads.
    pub fn effective(&self) -> &Arc<Effective> {
        &self.effective
    }

    /// The present state, to go back to.
    pub fn mark(&self) -> Mark {
        Mark(self.state.clone())
    }

    /// Goes back to a state (ROLLBACK, ROLLBACK TO SAVEPOINT).
    pub fn restore(&mut self, mark: &Mark) {
        if !Arc::ptr_eq(&self.state, &mark.0) {
            let left = std::mem::replace(&mut self.state, mark.0.clone());
            self.keep_names(left.custom.keys().chain(left.custom_local.keys()));
            self.refresh();
        }
    }

    /// A setting that no part of the server knows is known once it was set, also where the value
    /// that it was given has ended: then it has the one that RESET makes of it.
    fn keep_names<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        for name in names {
            if !self.state.custom.contains_key(name) {
                let value = self.defaults.custom(name);
                Arc::make_mut(&mut self.state).custom.insert(name.clone(), value);
            }
        }
    }

    /// COMMIT: SET LOCAL ends.
    pub fn end_transaction(&mut self) {
        if self.state.local.is_empty() && self.state.custom_local.is_empty() {
            return;
        }
        let state = Arc::make_mut(&mut self.state);
        state.local.clear();
        state.local_roles.clear();
        let ended = std::mem::take(&mut state.custom_local);
        self.keep_names(ended.keys());
        self.refresh();
    }

    /// Reported settings whose value the client does not know yet.
    pub fn take_changes(&mut self) -> Vec<(&'static str, String)> {
        let mut changes = Vec::new();
        if !std::mem::take(&mut self.is_unreported) {
            return changes;
        }
        for (index, definition) in definition::all().iter().enumerate().filter(|(_, d)| d.report) {
            let raw = self.state.local.get(&index).unwrap_or(&self.state.session[index]);
            if self.reported[index].as_ref() != Some(raw) {
                self.reported[index] = Some(raw.clone());
                changes.push((definition.name, value::display(definition, raw)));
            }
        }
        changes
    }

    fn raw(&self, index: usize) -> &str {
        self.state.local.get(&index).unwrap_or(&self.state.session[index])
    }

    fn refresh(&mut self) {
        let value = |name| definition::find(name).map_or("", |index| self.raw(index));
        let effective = Effective::read(value, |name| self.role(name));
        self.effective = Arc::new(effective);
        self.is_unreported = true;
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

impl Defaults {
    /// What RESET makes of a setting that no part of the server knows.
    fn custom(&self, name: &str) -> Arc<str> {
        self.custom.get(name).map_or_else(|| "".into(), |(value, _)| value.clone())
    }
}

/// 55P02 for what is the whole server's: no session begins with a value of its own.
fn check_scope(definition: &Definition) -> Result<()> {
    if definition.access != Access::Server {
        return Ok(());
    }
    Err(SqlError::new(
        sqlstate::CANT_CHANGE_RUNTIME_PARAM,
        format!("parameter \"{}\" is the server's and cannot be set for a connection", definition.name),
    ))
}

fn check_access(definition: &Definition) -> Result<()> {
    let message = match definition.access {
        Access::User | Access::Superuser | Access::Server | Access::Hidden => return Ok(()),
        Access::Internal => format!("parameter \"{}\" cannot be changed", definition.name),
        Access::Start => {
            format!("parameter \"{}\" cannot be changed without restarting the server", definition.name)
        }
    };
    Err(SqlError::new(sqlstate::CANT_CHANGE_RUNTIME_PARAM, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &mut Settings, name: &str, value: &str) -> String {
        match settings.set(name, Some(value), false) {
            Ok(()) => settings.show(name).unwrap(),
            Err(error) => format!("{} {}", error.sqlstate, error.message),
        }
    }

    #[test]
    fn values_are_checked_and_normalized() {
        let mut settings = Settings::new();
        for (name, value, expected) in [
            ("statement_timeout", "5000", "5s"),
            ("statement_timeout", "1500us", "2ms"),
            ("statement_timeout", "1.5 min", "90s"),
            (
                "statement_timeout",
                "-5",
                "22023 -5 ms is outside the valid range for parameter \"statement_timeout\" (0 .. 2147483647)",
            ),
            ("statement_timeout", "abc", "22023 invalid value for parameter \"statement_timeout\": \"abc\""),
            ("work_mem", "10MB", "10MB"),
            (
                "work_mem",
                "1",
                "22023 1 kB is outside the valid range for parameter \"work_mem\" (64 .. 2147483647)",
            ),
            ("enable_seqscan", "OF", "off"),
            ("enable_seqscan", "o", "22023 parameter \"enable_seqscan\" requires a Boolean value"),
            ("timezone", "europe/berlin", "Europe/Berlin"),
            ("TimeZone", "utc", "UTC"),
            ("timezone", "foo/bar", "22023 invalid value for parameter \"TimeZone\": \"foo/bar\""),
            ("datestyle", "dmy", "ISO, DMY"),
            ("datestyle", "Postgres", "Postgres, DMY"),
            ("datestyle", "postgres, mdy", "Postgres, MDY"),
            ("datestyle", "euro", "Postgres, DMY"),
            ("datestyle", "sql, us", "SQL, MDY"),
            ("datestyle", "german", "German, DMY"),
            ("datestyle", "mdy, german", "German, MDY"),
            ("datestyle", "default", "ISO, MDY"),
            ("datestyle", "iso, ymd", "ISO, YMD"),
            ("datestyle", "iso, sql", "22023 invalid value for parameter \"DateStyle\": \"iso, sql\""),
            ("datestyle", "dmy, us", "22023 invalid value for parameter \"DateStyle\": \"dmy, us\""),
            ("datestyle", "french", "22023 invalid value for parameter \"DateStyle\": \"french\""),
            ("datestyle", "", "ISO, YMD"),
            ("client_encoding", "unicode", "UTF8"),
            ("application_name", "a~ b\té\n", "a~ b????"),
            ("server_version", "1", "55P02 parameter \"server_version\" cannot be changed"),
            ("nonsense", "1", "42704 unrecognized configuration parameter \"nonsense\""),
            ("cognate.nonsense", "1", "42704 unrecognized configuration parameter \"cognate.nonsense\""),
            ("my.own", "x", "x"),
            ("cognate.read_after", "cafe/18446744073709551615", "cafe/18446744073709551615"),
            (
                "cognate.read_after",
                "cafe",
                "22023 invalid value for parameter \"cognate.read_after\": \"cafe\"",
            ),
            ("cognate.read_after", "/1", "22023 invalid value for parameter \"cognate.read_after\": \"/1\""),
            (
                "cognate.read_after",
                "a/-1",
                "22023 invalid value for parameter \"cognate.read_after\": \"a/-1\"",
            ),
            ("cognate.read_after", "", ""),
        ] {
            assert_eq!(set(&mut settings, name, value), expected, "{name} = {value}");
        }
    }

    /// `pg_settings` shows them so, and compares them with what there is.
    #[test]
    fn built_in_defaults_are_in_normal_form() {
        for definition in definition::all() {
            let is_read = matches!(definition.kind, Kind::Bool | Kind::Integer { .. } | Kind::Real { .. });
            let normal = value::normalize(definition, definition.default, definition.default);
            assert!(!is_read || normal.as_deref() == Ok(definition.default), "{definition:?}: {normal:?}");
        }
    }

    #[test]
    fn local_values_end_with_the_transaction_and_marks_restore() {
        let mut settings = Settings::new();
        let mark = settings.mark();
        settings.set("lock_timeout", Some("7s"), true).unwrap();
        assert_eq!(settings.effective().lock_timeout_ms, 7000);
        settings.end_transaction();
        assert_eq!(settings.effective().lock_timeout_ms, 0);
        settings.set("lock_timeout", Some("3"), false).unwrap();
        settings.end_transaction();
        assert_eq!(settings.show("lock_timeout").unwrap(), "3ms");
        settings.restore(&mark);
        assert_eq!(settings.show("lock_timeout").unwrap(), "0");
    }

    /// Each commit at a node of a cluster sets one.
    #[test]
    fn a_fact_that_nobody_decodes_changes_nothing_else() {
        let mut settings = Settings::new();
        settings.take_changes();
        let before = settings.effective().clone();
        settings.set_fact("cognate.commit_token", "c/7").unwrap();
        assert_eq!(settings.show("cognate.commit_token").unwrap(), "c/7");
        assert_eq!(settings.source("cognate.commit_token"), Some(("override", "c/7")));
        assert!(Arc::ptr_eq(&before, settings.effective()), "nothing was decoded anew");
        assert!(settings.take_changes().is_empty());
        // And it stays where the transaction after it is rolled back.
        let mark = settings.mark();
        settings.set("lock_timeout", Some("7s"), false).unwrap();
        settings.restore(&mark);
        assert_eq!(settings.show("cognate.commit_token").unwrap(), "c/7");
    }

    #[test]
    fn names_that_were_set_once_are_known_after_their_values_have_ended() {
        let mut settings = Settings::new();
        let mark = settings.mark();
        settings.set("my.local", Some("a"), true).unwrap();
        assert_eq!(settings.show("my.local").unwrap(), "a");
        settings.end_transaction();
        assert_eq!(settings.show("my.local").unwrap(), "");
        settings.set("my.own", Some("b"), false).unwrap();
        settings.set("my.other", Some("c"), true).unwrap();
        settings.restore(&mark);
        for name in ["my.local", "my.own", "my.other"] {
            assert_eq!(settings.show(name).unwrap(), "", "{name}");
        }
        assert!(settings.show("my.third").is_err());
    }

    #[test]
    fn the_strongest_origin_wins_whoever_comes_first() {
        let mut settings = Settings::new();
        assert_eq!(settings.source("lock_timeout"), Some(("default", "0")));
        assert_eq!(settings.source("my.own"), None);
        for (value, origin) in [
            ("3", Origin::Role),
            ("1", Origin::AllRoles),
            ("2", Origin::Database),
            ("4", Origin::Role),
            ("0", Origin::BuiltIn),
        ] {
            settings.set_option("lock_timeout", value, origin).unwrap();
            settings.set_option("my.own", value, origin).unwrap();
        }
        assert!(
            settings.set_option("lock_timeout", "soon", Origin::AllRoles).is_err(),
            "checked all the same"
        );
        assert_eq!(settings.source("LOCK_TIMEOUT"), Some(("user", "4")));
        assert_eq!(settings.show("my.own").unwrap(), "4");
        // An equal value of the session's own is its own.
        settings.set("lock_timeout", Some("4"), true).unwrap();
        assert_eq!(settings.source("lock_timeout"), Some(("session", "4")));
        settings.end_transaction();
        assert_eq!(settings.source("lock_timeout"), Some(("user", "4")));
        let mark = settings.mark();
        settings.set("lock_timeout", Some("5"), false).unwrap();
        settings.set("my.own", Some("5"), false).unwrap();
        settings.restore(&mark);
        assert_eq!(settings.source("lock_timeout"), Some(("user", "4")));
        for reset in [
            |settings: &mut Settings| settings.reset_all(),
            |settings: &mut Settings| {
                settings.set("lock_timeout", None, false).unwrap();
                settings.set("my.own", None, false).unwrap();
            },
        ] {
            settings.set("lock_timeout", Some("5"), false).unwrap();
            settings.set("my.own", Some("5"), false).unwrap();
            reset(&mut settings);
            assert_eq!(settings.show("lock_timeout").unwrap(), "4ms");
            assert_eq!(settings.show("my.own").unwrap(), "4");
            assert_eq!(settings.source("lock_timeout"), Some(("user", "4")));
        }
    }

    #[test]
    fn changes_are_reported_once() {
        let mut settings = Settings::new();
        assert!(settings.take_changes().iter().any(|(name, _)| *name == "server_version"));
        assert!(settings.take_changes().is_empty());
        settings.set("application_name", Some("a"), false).unwrap();
        assert_eq!(settings.take_changes(), vec![("application_name", "a".to_owned())]);
    }
}
