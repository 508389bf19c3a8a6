//! PREPARE TRANSACTION, and the decision about what it left.

use bytes::Bytes;
use cognate_engine::sibling::{Instance, Xid};
use cognate_engine::{Commit, Owner};

use super::outcome::Asked;
use super::transaction::no_transaction;
use super::{Block, Open, Session, SqlDatabase};
use crate::catalog::{Catalog, DATABASE_OID, Oid};
use crate::ddl::permission::denied;
use crate::error::{Result, SqlError, sqlstate};

/// Most bytes of the identifier of a prepared transaction.
const IDENTIFIER_BYTES_MAX: usize = 199;

impl Session {
    /// PREPARE TRANSACTION.
    pub(super) async fn prepare_block(&mut self, identifier: &str) -> Result<&'static str> {
        match self.block {
            Block::None | Block::Implicit => {
                self.notices.push(no_transaction());
                return Ok("ROLLBACK");
            }
            Block::Failed | Block::Decided => {
                let overtaken = self.overtaken.take();
                self.rollback();
                self.await_durable().await?;
                // Its client has not heard of it yet, and would take it for prepared.
                return overtaken.map_or(Ok("ROLLBACK"), Err);
            }
            Block::Explicit if self.sibling.is_some() => {
                return Err(SqlError::new(
                    sqlstate::MIP_OTHER_TRANSACTION,
                    "PREPARE TRANSACTION does not fit an instance of a family",
                )
                .with_hint("End it with PREPARE MIP."));
            }
            Block::Explicit => {}
        }
        if identifier.is_empty() || identifier.len() > IDENTIFIER_BYTES_MAX {
            let what = if identifier.is_empty() { "empty" } else { "too long" };
            self.rollback();
            let message = format!("transaction identifier \"{identifier}\" is {what}");
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        if let Err(refusal) = self
            .check_no_temporary()
            .and_then(|()| self.check_no_held())
            .and_then(|()| self.check_no_advisory("PREPARE TRANSACTION"))
            .and_then(|()| self.check_no_news())
            .and_then(|()| self.check_is_here_to_prepare("PREPARE TRANSACTION"))
            .and_then(|()| self.check_majority())
        {
            self.rollback();
            return Err(refusal);
        }
        let transaction = self.facts.transaction();
        if let Err(error) = self.before_commit().await {
            self.rollback();
            return Err(error);
        }
        // Also what has done nothing is prepared: whoever decides must find it.
        self.open_transaction(false);
        self.note_rests();
        let Some(Open { mut engine, .. }) = self.open.take() else {
            return Err(SqlError::internal("no transaction is open"));
        };
        let name = self.name_request(&mut engine);
        let note = self.prepared_note();
        let prepared = match name {
            Ok(name) => self.in_order(Asked::Prepare(&name), engine.prepare_in_order(identifier, note)).await,
            Err(error) => Err(error),
        };
        match prepared.inspect_err(|_| self.rollback())? {
            Ok(commit) => {
                self.keep_token_at_node(commit.csn);
                self.end_prepared(commit.durable).await?;
                Ok("PREPARE TRANSACTION")
            }
            Err(cognate_engine::Error::AlreadyPrepared) => {
                let error = self.end_unprepared(cognate_engine::Error::AlreadyPrepared, transaction);
                let message = format!("transaction identifier \"{identifier}\" is already in use");
                Err(SqlError::new(error.sqlstate, message))
            }
            Err(error) => Err(self.end_unprepared(error, transaction)),
        }
    }

    /// Whose a prepared transaction is, the role's that has prepared it: kept with it, for the view
    /// and for who wants to decide about it.
    pub(super) fn prepared_note(&self) -> Bytes {
        let (user, name) = (self.facts.current_user(), self.facts.database_name());
        let (database, role) = (self.database.oid(), self.facts.role(&self.facts.catalog()));
        format!("{user}\0{name}\0{database}\0{role}").into()
    }

    /// A transaction was prepared, or its instance was told that it will not be.
    pub(super) async fn end_prepared(&mut self, durable: cognate_engine::DurableWait) -> Result<()> {
        self.end(false);
        self.commits += 1;
        durable.await?;
        self.await_durable().await
    }

    /// A transaction could not be prepared, and is rolled back.
    pub(super) fn end_unprepared(&mut self, error: cognate_engine::Error, transaction: u64) -> SqlError {
        self.facts.rest_on_everything();
        let error = self.name_failure(error);
        self.note_failure(&error, transaction);
        self.failure_noted = error.is_retryable();
        self.note_conflict(&error);
        self.rollback();
        error
    }

    /// COMMIT PREPARED and ROLLBACK PREPARED.
    pub(super) async fn decide_prepared(&mut self, identifier: &str, commits: bool) -> Result<&'static str> {
        let words = if commits { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" };
        if matches!(self.block, Block::Explicit | Block::Failed | Block::Decided) || self.open.is_some() {
            return Err(SqlError::new(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                format!("{words} cannot run inside a transaction block"),
            ));
        }
        self.check_prepared(identifier).await?;
        let engine = self.database.engine();
        let decided = match commits {
            _ if engine.is_node() => self.decide_in_order(identifier, commits).await?,
            true => self.database.commit_prepared(identifier)?,
            false => engine.rollback_prepared(identifier),
        };
        match decided {
            Ok(commit) => {
                self.keep_token_at_node(commit.csn);
                self.commits += 1;
                commit.durable.await?;
                Ok(words)
            }
            Err(cognate_engine::Error::NotPrepared) => {
                // Perhaps somebody has decided it just now.
                self.facts.rest_on_everything();
                Err(SqlError::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("prepared transaction with identifier \"{identifier}\" does not exist"),
                ))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Has a decision ordered, under the name that the client gives to what it asks for. Where that
    /// is the name of what is prepared, it is left to that: its outcome is what is decided.
    async fn decide_in_order(
        &mut self,
        identifier: &str,
        commits: bool,
    ) -> Result<std::result::Result<Commit, cognate_engine::Error>> {
        self.check_majority()?;
        let engine = self.database.engine();
        let prepared = engine.prepared_name(&Owner::Global(identifier.into()));
        let given = self.given_name()?.filter(|given| prepared.as_ref() != Some(given));
        let asked = engine.decide_prepared_in_order(identifier, commits, given.as_deref());
        let named = match &given {
            Some(given) => Asked::Request(given),
            None => Asked::Decision(identifier, prepared.as_deref()),
        };
        self.in_order(named, asked).await
    }

    /// 42501 for what another role has prepared, unless the session is a superuser's; 0A000 for
    /// what was prepared in another database, if there is that one.
    async fn check_prepared(&mut self, identifier: &str) -> Result<()> {
        let Some(note) = self.note_of(&Owner::Global(identifier.into())).await? else { return Ok(()) };
        let (catalog, _) = self.catalog_with_state();
        let own = self.facts.role(&catalog);
        let may_all = self.facts.rights(&catalog).is_none();
        if !may_all && (own == NOBODY || note.role_in(&catalog) != Some(own)) {
            return Err(denied("permission denied to finish prepared transaction")
                .with_hint("Must be superuser or the user that prepared the transaction."));
        }
        // No session is in a database that was dropped while this was prepared there.
        let is_gone = catalog.database_by_oid(note.database).is_none();
        if note.database == self.database.oid() || is_gone {
            return Ok(());
        }
        let message = "prepared transaction belongs to another database";
        Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
            .with_hint("Connect to the database where the transaction was prepared to finish it."))
    }

    /// 42501 for an instance of a family that a role has prepared of which the session's is no
    /// member, unless the session is a superuser's. Any session of those may decide about it:
    /// application servers finish what others have left.
    pub(super) async fn check_prepared_instance(&mut self, xid: &Xid, instance: Instance) -> Result<()> {
        let (catalog, _) = self.catalog_with_state();
        if self.facts.rights(&catalog).is_none() {
            return Ok(());
        }
        let Some(note) = self.note_of(&Owner::Instance(xid.clone(), instance)).await? else { return Ok(()) };
        let (catalog, _) = self.catalog_with_state();
        let role = note.role_in(&catalog);
        match self.facts.rights(&catalog) {
            Some(rights) if !role.is_some_and(|role| rights.has(role)) => {
                Err(denied("permission denied to finish prepared instance")
                    .with_hint("Must be superuser or a member of the role that prepared the instance."))
            }
            _ => Ok(()),
        }
    }

    /// What is kept with a prepared transaction. At a node that does not know of it, the order may
    /// know, and the decision would find it at its place: so that is waited for.
    async fn note_of(&mut self, owner: &Owner) -> Result<Option<Note>> {
        let engine = self.database.engine().clone();
        if let Some(note) = engine.prepared_note(owner) {
            return Ok(Some(Note::of(&note)));
        }
        if engine.is_node() {
            Box::pin(self.await_newest()).await?;
        }
        Ok(engine.prepared_note(owner).map(|note| Note::of(&note)))
    }
}

/// What a session acts as whose role has gone.
const NOBODY: Oid = 0;

/// What is kept with a prepared transaction: who has prepared it, and where.
///
/// ```text
/// user · 0 · name of the database · 0 · its oid · 0 · oid of the role      as texts
/// ```
///
/// Builds before did not write the role, and not the database's oid either if it was the first one.
pub(super) struct Note {
    /// What the role was called.
    user: String,
    /// What its session has called the database.
    pub(super) name: String,
    pub(super) database: Oid,
    role: Option<Oid>,
}

impl Note {
    pub(super) fn of(note: &[u8]) -> Note {
        let note = String::from_utf8_lossy(note);
        let mut parts = note.split('\0').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let (user, name, database, role) = (next(), next(), next(), next());
        let database = database.parse().unwrap_or(DATABASE_OID);
        Note { user, name, database, role: role.parse().ok() }
    }

    /// The role, if it is one: of a name that becomes another role's it has nothing. An older note
    /// has nothing but the name.
    pub(super) fn role_in(&self, catalog: &Catalog) -> Option<Oid> {
        self.role.or_else(|| catalog.role_oid(&self.user))
    }

    /// What the role is called now; of one that has gone, or was none, what it was called.
    pub(super) fn owner_in(&self, catalog: &Catalog) -> String {
        let known = self.role.and_then(|role| catalog.role_name(role));
        known.unwrap_or(&self.user).to_owned()
    }
}

impl SqlDatabase {
    /// How many transactions are prepared in a database.
    pub(crate) fn prepared_in(&self, database: Oid) -> usize {
        let all = self.engine().prepared();
        all.iter().filter(|info| Note::of(&info.note).database == database).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Object, Role};

    #[test]
    fn a_role_is_known_by_its_oid_and_in_older_notes_by_its_name() {
        let role = |oid, name: &str| Object::Role(Role::new(oid, name.to_owned()).into());
        let catalog = Catalog::new(1, [role(20_000, "ann"), role(20_001, "bob")]);
        let of = |parts: &[&str]| {
            let note = Note::of(parts.join("\0").as_bytes());
            let (role, owner) = (note.role_in(&catalog), note.owner_in(&catalog));
            (note.database, role, owner)
        };
        let told = |database, role, owner: &str| (database, role, owner.to_owned());
        assert_eq!(of(&["ann", "d"]), told(DATABASE_OID, Some(20_000), "ann"));
        assert_eq!(of(&["ann", "d", "16390"]), told(16_390, Some(20_000), "ann"));
        assert_eq!(of(&["eve", "d"]), told(DATABASE_OID, None, "eve"));
        // Since then bob was called ann, or eve.
        assert_eq!(of(&["ann", "d", "16390", "20001"]), told(16_390, Some(20_001), "bob"));
        assert_eq!(of(&["eve", "d", "5", "20001"]), told(DATABASE_OID, Some(20_001), "bob"));
        // It has gone, and somebody else has its name.
        assert_eq!(of(&["bob", "d", "5", "19999"]), told(DATABASE_OID, Some(19_999), "bob"));
    }
}
