//! CREATE, ALTER and DROP DATABASE.
//!
//! A database is made with nothing in it, so that it is one object of the catalog; it is dropped
//! with all that is stored under its oid. A template that has objects is refused: nothing is
//! copied.
//!
//! Locks: the name of a database that is made, renamed or dropped; who drops it takes it away from
//! those that make something in it (`Work::lock_name`), and then each of its tables.

use std::time::{Duration, Instant};

use cognate_engine::{LockMode, TreeMode};
use sqlparser::ast::Ident;

use super::permission::denied;
use crate::catalog::{Catalog, Database, FIRST_USER_OID, Object, Oid, RoleSettings, store};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{MAX_NAME, cut, fold};
use crate::parse::{DatabaseOption, DatabaseStatement};
use crate::session::work::Work;

/// So long DROP and ALTER wait for sessions that are about to go, as PostgreSQL does.
const PATIENCE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(20);

/// 3D000.
pub(crate) fn undefined_database(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

fn in_use(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::OBJECT_IN_USE, message)
}

/// What CREATE and ALTER say.
#[derive(Default)]
struct Request {
    owner: Option<Ident>,
    template: Option<Ident>,
    is_template: Option<bool>,
    allows_connections: Option<bool>,
    connection_limit: Option<i32>,
}

impl Request {
    /// Reads options of CREATE, or of ALTER. 42601, 22023; what is not there is refused by name.
    fn new(options: &[DatabaseOption], creates: bool) -> Result<Request> {
        let mut request = Request::default();
        for (at, option) in options.iter().enumerate() {
            if options[..at].iter().any(|known| known.name == option.name) {
                return Err(SqlError::syntax("conflicting or redundant options"));
            }
            request.take(option, creates)?;
        }
        Ok(request)
    }

    fn take(&mut self, option: &DatabaseOption, creates: bool) -> Result<()> {
        let (name, value) = (option.name.as_str(), option.value.as_ref());
        let text = value.map(|value| value.value.as_str());
        let truth = || text.map(|text| truth(name, text)).transpose();
        match name {
            "connection limit" | "connection_limit" => {
                self.connection_limit = text.map(connection_limit).transpose()?;
            }
            "is_template" => self.is_template = truth()?,
            "allow_connections" => self.allows_connections = truth()?,
            "tablespace" if text.is_none_or(|text| text == "pg_default") => {}
            "tablespace" => {
                let message = format!("tablespace \"{}\" does not exist", text.unwrap_or_default());
                return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
            }
            _ if !creates => return Err(unknown(name)),
            "owner" => self.owner = value.cloned(),
            "template" => self.template = value.cloned(),
            "encoding" => check_encoding(text.unwrap_or("UTF8"))?,
            "locale" | "lc_collate" | "lc_ctype" => check_locale(text.unwrap_or("C"))?,
            "locale_provider" if text.is_some_and(|text| text.eq_ignore_ascii_case("icu")) => {
                return Err(SqlError::unsupported("a database with the locale provider icu"));
            }
            "locale_provider" if text.is_some_and(|text| !text.eq_ignore_ascii_case("libc")) => {
                let message = format!("unrecognized locale provider: {}", text.unwrap_or_default());
                return Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message));
            }
            "locale_provider" | "collation_version" | "oid" => {}
            "icu_locale" => return Err(SqlError::unsupported("a database with an ICU locale")),
            "strategy" => check_strategy(text.unwrap_or("wal_log"))?,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

fn unknown(option: &str) -> SqlError {
    SqlError::syntax(format!("option \"{option}\" not recognized"))
}

fn truth(option: &str, text: &str) -> Result<bool> {
    let text = text.to_lowercase();
    match text.as_str() {
        "1" | "on" | "true" => Ok(true),
        "0" | "off" | "false" => Ok(false),
        _ => Err(SqlError::syntax(format!("{option} requires a Boolean value"))),
    }
}

fn connection_limit(text: &str) -> Result<i32> {
    let number =
        text.parse::<i32>().map_err(|_| SqlError::syntax("connection limit requires an integer value"))?;
    match number >= -1 {
        true => Ok(number),
        false => Err(invalid(format!("invalid connection limit: {number}"))),
    }
}

/// All texts are UTF-8.
fn check_encoding(name: &str) -> Result<()> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" | "6" | "1" => Ok(()),
        _ => Err(SqlError::unsupported(format_args!("a database with the encoding {name}"))),
    }
}

/// Texts are compared byte by byte.
fn check_locale(name: &str) -> Result<()> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.to_ascii_lowercase().as_str() {
        "c" | "posix" | "cutf8" | "ucsbasic" => Ok(()),
        _ => Err(SqlError::unsupported(format_args!("a database with the locale \"{name}\""))
            .with_hint("Texts are compared byte by byte: the locale is C.")),
    }
}

fn check_strategy(name: &str) -> Result<()> {
    match name.to_ascii_lowercase().as_str() {
        "wal_log" | "file_copy" => Ok(()),
        _ => Err(invalid(format!("invalid create database strategy \"{name}\""))
            .with_hint("Valid strategies are \"wal_log\" and \"file_copy\".")),
    }
}

/// Whether anything was made in a database.
fn has_objects(catalog: &Catalog) -> bool {
    catalog.objects().any(|object| object.oid() >= FIRST_USER_OID && !catalog.shares(object))
}

/// Waits for a moment in which others may go.
async fn glance() -> Result<()> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => tokio::time::sleep(GLANCE).await,
        // Without a runtime there is nobody else on this thread.
        Err(_) => std::thread::sleep(GLANCE),
    }
    Ok(())
}

/// How many sessions and prepared transactions use a database, in PostgreSQL's words.
fn users(sessions: usize, prepared: usize) -> String {
    match (sessions, prepared) {
        (0, 1) => "There is 1 prepared transaction using the database.".to_owned(),
        (0, prepared) => format!("There are {prepared} prepared transactions using the database."),
        (1, 0) => "There is 1 other session using the database.".to_owned(),
        (sessions, 0) => format!("There are {sessions} other sessions using the database."),
        _ => format!(
            "There are {sessions} other session(s) and {prepared} prepared transaction(s) using the database."
        ),
    }
}

impl Work<'_> {
    /// A statement about databases.
    pub(crate) async fn database_statement(&mut self, statement: &DatabaseStatement) -> Result<()> {
        match statement {
            DatabaseStatement::Create { name, options } => self.create_database(name, options).await,
            DatabaseStatement::Alter { name, options } => self.alter_database(name, options).await,
            DatabaseStatement::Rename { name, new } => self.rename_database(name, new).await,
            DatabaseStatement::Drop { name, if_exists, force } => {
                self.drop_database(&fold(name), *if_exists, *force).await
            }
            DatabaseStatement::Comment { name, comment } => {
                let name = fold(name);
                let Some(known) = self.catalog.database_called(&name, &self.facts.given_database) else {
                    // As in PostgreSQL: dumps are to come back under another name.
                    let message = format!("database \"{name}\" does not exist");
                    self.notice(SqlError::warning(sqlstate::INVALID_CATALOG_NAME, message));
                    return Ok(());
                };
                let comment = comment.clone().filter(|comment| !comment.is_empty());
                let database = Database { comment, ..known.clone() };
                self.require_database_owner(&database)?;
                self.change(Object::Database(database.into()))
            }
        }
    }

    /// The database that a statement names. 3D000.
    pub(crate) fn database_called(&self, name: &str) -> Result<&Database> {
        let mut given = self.facts.given_database.clone();
        cut(&mut given, MAX_NAME);
        self.catalog.database_called(name, &given).ok_or_else(|| undefined_database(name))
    }

    /// The name of a database, as this session calls it.
    pub(crate) fn name_of_database(&self, oid: Oid) -> String {
        match oid == self.database.oid() {
            true => self.facts.database_name(),
            false => self.catalog.database_by_oid(oid).map_or_else(String::new, |known| known.name.clone()),
        }
    }

    fn require_database_owner(&self, database: &Database) -> Result<()> {
        self.require_owner(database.oid, || format!("database {}", self.name_of_database(database.oid)))
    }

    /// Whether the session may make databases.
    pub(super) fn may_create_databases(&self) -> bool {
        let role = || self.catalog.role_by_oid(self.facts.role(&self.catalog));
        self.rights().is_none() || role().is_some_and(|role| role.create_db)
    }

    async fn create_database(&mut self, name: &Ident, options: &[DatabaseOption]) -> Result<()> {
        let name = fold(name);
        if name.is_empty() {
            return Err(SqlError::syntax("zero-length delimited identifier at or near \"\"\"\""));
        }
        let request = Request::new(options, true)?;
        let owner = match &request.owner {
            Some(owner) => self.owner_named(owner).await?,
            None => None,
        };
        if !self.may_create_databases() {
            return Err(denied("permission denied to create database"));
        }
        self.check_template(request.template.as_ref())?;
        self.lock_shared_name(store::DATABASE_NAMES, &name).await?;
        if self.catalog.database_named(&name).is_some() {
            let message = format!("database \"{name}\" already exists");
            return Err(SqlError::new(sqlstate::DUPLICATE_DATABASE, message));
        }
        let oid = self.allocate_oid()?;
        let database = Database {
            is_template: request.is_template.unwrap_or(false),
            allows_connections: request.allows_connections.unwrap_or(true),
            connection_limit: request.connection_limit.unwrap_or(-1),
            ..Database::new(oid, name)
        };
        self.change(Object::Database(database.into()))?;
        owner.map_or(Ok(()), |owner| self.set_owner(oid, owner))
    }

    /// 3D000, 42501, and 0A000 for a template that would have to be copied.
    fn check_template(&self, template: Option<&Ident>) -> Result<()> {
        let name = template.map_or_else(|| "template1".to_owned(), fold);
        let known = self.database_called(&name).map_err(|_| {
            let message = format!("template database \"{name}\" does not exist");
            SqlError::new(sqlstate::INVALID_CATALOG_NAME, message)
        })?;
        if !known.is_template && self.require_database_owner(known).is_err() {
            return Err(denied(format!("permission denied to copy database \"{name}\"")));
        }
        let catalog = self.database.of(known.oid).map(|database| database.catalog());
        if catalog.is_some_and(|catalog| has_objects(&catalog)) {
            return Err(SqlError::unsupported(format_args!(
                "copying a template that has objects (database \"{name}\")"
            ))
            .with_hint("Use template0, and make the objects in the new database."));
        }
        Ok(())
    }

    async fn alter_database(&mut self, name: &Ident, options: &[DatabaseOption]) -> Result<()> {
        let request = Request::new(options, false)?;
        let mut database = self.database_called(&fold(name))?.clone();
        self.require_database_owner(&database)?;
        if request.allows_connections == Some(false) && database.oid == self.database.oid() {
            return Err(invalid("cannot disallow connections for current database"));
        }
        self.lock_shared_name(store::DATABASE_NAMES, &database.name).await?;
        database = self.database_called(&fold(name))?.clone();
        database.is_template = request.is_template.unwrap_or(database.is_template);
        database.allows_connections = request.allows_connections.unwrap_or(database.allows_connections);
        database.connection_limit = request.connection_limit.unwrap_or(database.connection_limit);
        self.change(Object::Database(database.into()))
    }

    async fn rename_database(&mut self, name: &Ident, new: &Ident) -> Result<()> {
        let (name, new) = (fold(name), fold(new));
        let known = self.database_called(&name)?.clone();
        self.require_database_owner(&known)?;
        if !self.may_create_databases() {
            return Err(denied("permission denied to rename database"));
        }
        for name in [&known.name, &new] {
            self.lock_shared_name(store::DATABASE_NAMES, name).await?;
        }
        if self.catalog.database_named(&new).is_some() {
            let message = format!("database \"{new}\" already exists");
            return Err(SqlError::new(sqlstate::DUPLICATE_DATABASE, message));
        }
        let database = self.database_called(&name)?.clone();
        if database.oid == self.database.oid() {
            let message = "current database cannot be renamed";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        self.await_unused(database.oid, &name).await?;
        self.change(Object::Database(Database { name: new, ..database }.into()))
    }

    async fn drop_database(&mut self, name: &str, if_exists: bool, force: bool) -> Result<()> {
        let known = match self.database_called(name) {
            Ok(known) => known.clone(),
            Err(error) if if_exists => {
                self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.require_database_owner(&known)?;
        if known.is_template {
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, "cannot drop a template database"));
        }
        if known.oid == self.database.oid() {
            return Err(in_use("cannot drop the currently open database"));
        }
        if known.oid < FIRST_USER_OID {
            return Err(SqlError::unsupported(format_args!(
                "DROP DATABASE of \"{name}\", which is there from the beginning,"
            )));
        }
        self.lock_shared_name(store::DATABASE_NAMES, &known.name).await?;
        self.database_called(name)?;
        if force {
            self.end_sessions(known.oid, name)?;
        }
        self.await_unused(known.oid, name).await?;
        self.drop_contents(known.oid).await?;
        self.forget_settings_in(known.oid)?;
        self.remove(known.oid)
    }

    /// Ends the sessions of a database that is to be dropped. 55006 if transactions are prepared
    /// there: they would stay; 42501 where the user may not end a session.
    fn end_sessions(&self, database: Oid, name: &str) -> Result<()> {
        let prepared = self.database.prepared_in(database);
        if prepared > 0 {
            let message = format!("database \"{name}\" is being used by prepared transactions");
            return Err(in_use(message).with_detail(users(0, prepared)));
        }
        self.facts.end_sessions_of(database)
    }

    /// Waits a moment until nobody uses a database. 55006.
    async fn await_unused(&self, database: Oid, name: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let sessions = self.database.presence().count_in(database);
            let prepared = self.database.prepared_in(database);
            if sessions + prepared == 0 {
                return Ok(());
            }
            // What is prepared does not go by itself.
            if prepared > 0 || Instant::now() > end {
                let message = format!("database \"{name}\" is being accessed by other users");
                return Err(in_use(message).with_detail(users(sessions, prepared)));
            }
            self.interrupts.lock(glance()).await?;
        }
    }

    /// Removes all that is stored of a database but itself.
    async fn drop_contents(&mut self, database: Oid) -> Result<()> {
        let key = [store::DATABASES.to_be_bytes(), database.to_be_bytes()].concat();
        self.lock_key(store::NAME_TREE, &key, LockMode::Exclusive).await?;
        let Some(other) = self.database.of(database) else { return Ok(()) };
        let catalog = other.catalog();
        for table in catalog.tables() {
            self.hold_table(table.oid, TreeMode::Exclusive).await?;
        }
        // A table may have been rewritten while its lock was waited for.
        let catalog = other.catalog();
        self.engine.rest_on(other.catalog_csn());
        for table in catalog.tables() {
            self.hold_table(table.oid, TreeMode::Exclusive).await?;
            self.drop_trees(table);
        }
        let own = catalog.objects().filter(|object| !catalog.shares(object));
        for object in own.collect::<Vec<_>>() {
            self.engine.delete(store::CATALOG_TREE, &store::key(database, object.oid()))?;
        }
        Ok(())
    }

    /// Settings in a database go with it.
    fn forget_settings_in(&mut self, database: Oid) -> Result<()> {
        let all: Vec<_> = self.catalog.all_role_settings().cloned().collect();
        for stored in all.iter().filter(|stored| stored.in_others.contains_key(&database)) {
            let mut stored = RoleSettings::clone(stored);
            stored.in_others.remove(&database);
            match stored.is_empty() {
                true => self.remove(stored.oid)?,
                false => self.change(Object::RoleSettings(stored.into()))?,
            }
        }
        Ok(())
    }
}
