//! Statements without a plan: DDL, transaction control, settings, cursors, and what is accepted
//! without effect.

mod set_constraints;

use std::pin::Pin;
use std::sync::Arc;

use cognate_engine::{Access, Database, TreeMode};
use sqlparser::ast;

use super::listing::Named;
use super::parameters::Given;
use super::planning::unsupported;
use super::portal::PortalState;
use super::statement::tag;
use super::{Block, CommandTag, Fetch, Portal, Prepared, STATEMENTS_MAX, Session};
use crate::catalog::{CHECKPOINT_OID, Privileges};
use crate::ddl::names::{Qualified, single};
use crate::ddl::user_type::Dropped;
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{Command, DatabaseStatement, MipArgument, Statement};
use crate::session::work::Work;

/// Deepest tree of a statement that defines something: what is stored (defaults, checks, views)
/// becomes part of statements that look simple themselves.
const STORED_DEPTH_MAX: usize = 1000;

pub(super) fn check_stored_depth(statement: &Statement) -> Result<()> {
    if statement.depth() <= STORED_DEPTH_MAX {
        return Ok(());
    }
    let detail = format!("A definition may nest or chain up to {STORED_DEPTH_MAX} expressions.");
    Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").with_detail(detail))
}

/// A statement under way, in a box.
pub(super) type Seldom<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl Session {
    /// Starts a statement without a plan. `None`: the portal's state says how it goes on.
    pub(super) async fn start_utility(&mut self, portal: &mut Portal) -> Result<Option<Fetch>> {
        let prepared = portal.prepared.clone();
        let statement = prepared.statement().ok_or_else(|| SqlError::internal("an empty query was run"))?;
        if let Command::Mip(operation, arguments) = &statement.command {
            let values = self.mip_values(arguments, portal)?;
            let is_function = arguments.first().is_some_and(MipArgument::is_of_function);
            portal.state = self.mip(*operation, values, is_function).await?;
            return Ok(None);
        }
        if let Some(done) = self.control(statement).await? {
            portal.state = PortalState::Done(CommandTag::Plain(done));
            return Ok(None);
        }
        self.start_seldom(portal).await
    }

    /// Statements that are not part of every transaction. Boxed in a function that is no future
    /// itself, they are compiled once: what a future awaits is compiled wherever that one is.
    #[inline(never)]
    fn start_seldom<'a>(&'a mut self, portal: &'a mut Portal) -> Seldom<'a, Option<Fetch>> {
        Box::pin(self.start_other(portal))
    }

    async fn start_other(&mut self, portal: &mut Portal) -> Result<Option<Fetch>> {
        let prepared = portal.prepared.clone();
        let statement = prepared.statement().ok_or_else(|| SqlError::internal("an empty query was run"))?;
        // What must not be part of a larger transaction asks for this.
        let alone = self.block == Block::None && !statement.has_company;
        self.enter_for(&statement.command);
        if super::governed::executes(&statement.command) {
            self.go().await?;
        }
        if self.reads_after() && super::cluster::looks(&statement.command) {
            self.await_reads().await?;
        }
        let given = Given::of(portal);
        match &statement.command {
            Command::Sql(sql) => match sql.as_ref() {
                ast::Statement::ShowVariable { variable } => portal.state = self.show(variable)?,
                ast::Statement::Explain { .. } => portal.state = self.explain(sql, statement, &given).await?,
                ast::Statement::Execute { .. } => portal.state = self.execute(sql, portal)?,
                ast::Statement::Copy { .. } => return self.start_copy(portal, statement).await,
                ast::Statement::CreateTable(create) if create.query.is_some() => {
                    portal.state = self.create_table_as(create, statement, &given).await?;
                }
                _ => portal.state = PortalState::Done(self.other(sql, statement, &given, alone).await?),
            },
            Command::Backup => portal.state = self.start_backup(alone).await?,
            Command::Fetch { cursor, count, skip } => {
                portal.state = self.fetch_cursor(cursor, count, *skip, portal).await?;
            }
            Command::Do { language, code } => {
                let depth = portal.depth;
                Box::pin(self.start_inline(language.as_ref(), code.as_deref(), depth)).await?;
                portal.state = PortalState::Done(CommandTag::Plain("DO"));
            }
            command => {
                if matches!(command, Command::Domain(_) | Command::CreateSchema(_)) {
                    check_stored_depth(statement)?;
                }
                portal.state = PortalState::Done(CommandTag::Plain(self.command(command, alone).await?))
            }
        }
        Ok(None)
    }

    /// BEGIN, COMMIT and their kin. `None` if it is something else.
    async fn control(&mut self, statement: &Statement) -> Result<Option<&'static str>> {
        let sql = match &statement.command {
            Command::Sql(sql) => sql,
            Command::PrepareTransaction(identifier) => return self.prepare_block(identifier).await.map(Some),
            Command::CommitPrepared(identifier) => {
                return self.decide_prepared(identifier, true).await.map(Some);
            }
            Command::RollbackPrepared(identifier) => {
                return self.decide_prepared(identifier, false).await.map(Some);
            }
            _ => return Ok(None),
        };
        Ok(Some(match sql.as_ref() {
            ast::Statement::StartTransaction { modes, begin, .. } => {
                self.begin_block(modes, statement.deferrable)?;
                if *begin { "BEGIN" } else { "START TRANSACTION" }
            }
            ast::Statement::Commit { chain, .. } => self.commit_block(*chain).await?,
            ast::Statement::Rollback { chain, savepoint: None } => {
                self.rollback_block(*chain).await?;
                "ROLLBACK"
            }
            ast::Statement::Rollback { savepoint: Some(name), .. } => {
                self.rollback_to(&fold(name))?;
                "ROLLBACK"
            }
            ast::Statement::Savepoint { name } => {
                if self.reads_after() {
                    Box::pin(self.await_reads()).await?;
                }
                Box::pin(self.await_safe_snapshot()).await?;
                self.savepoint(fold(name))?;
                "SAVEPOINT"
            }
            ast::Statement::ReleaseSavepoint { name } => {
                self.release(&fold(name))?;
                "RELEASE"
            }
            _ => return Ok(None),
        }))
    }

    /// Statements that concern the session only, then DDL.
    async fn other(
        &mut self,
        sql: &ast::Statement,
        statement: &Statement,
        given: &Given,
        alone: bool,
    ) -> Result<CommandTag> {
        use ast::Statement as S;
        let words = match sql {
            S::Set(set) => {
                self.set_as_seen(set, statement).await?;
                "SET"
            }
            S::Reset(reset) => {
                self.reset(&reset.reset)?;
                "RESET"
            }
            S::Discard { object_type } => self.discard(object_type, alone).await?,
            S::Prepare { name, data_types, statement: inner } => {
                self.prepare_sql(fold(name), data_types, inner, statement)?;
                "PREPARE"
            }
            S::Deallocate { name, .. } => self.deallocate(name)?,
            S::Declare { stmts } => match stmts.as_slice() {
                [declare] => {
                    self.declare(declare, statement, given).await?;
                    "DECLARE CURSOR"
                }
                _ => return Err(SqlError::syntax("syntax error in DECLARE")),
            },
            S::Close { cursor } => self.close_cursor(cursor)?,
            S::LISTEN { channel } => {
                self.listen(&fold(channel))?;
                "LISTEN"
            }
            S::UNLISTEN { channel } => {
                let is_all = channel.quote_style.is_none() && channel.value == "*";
                self.unlisten((!is_all).then(|| fold(channel)).as_deref())?;
                "UNLISTEN"
            }
            S::NOTIFY { channel, payload } => {
                let payload = payload.as_deref().unwrap_or_default();
                self.notify(&fold(channel), payload)?;
                "NOTIFY"
            }
            S::Lock(lock) => {
                self.lock_tables_as(lock, statement).await?;
                "LOCK TABLE"
            }
            _ => {
                check_stored_depth(statement)?;
                if let S::CreateIndex(ast::CreateIndex { concurrently: true, .. }) = sql {
                    super::maintenance::require_alone(alone, "CREATE INDEX CONCURRENTLY")?;
                }
                if statement.concurrently {
                    super::maintenance::check_concurrent_drop(sql, alone)?;
                }
                return self.define(sql).await.map(CommandTag::Plain);
            }
        };
        Ok(CommandTag::Plain(words))
    }

    /// DDL.
    async fn define(&mut self, sql: &ast::Statement) -> Result<&'static str> {
        let words = tag(&Command::Sql(Box::new(sql.clone())));
        self.await_slow_node().await?;
        self.open_transaction(false);
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        work.require_writable(words)?;
        work.hold_own_role().await?;
        work.define(sql).await?;
        work.run_checks().await?;
        Ok(words)
    }

    /// Statements the parser crate does not know.
    async fn command(&mut self, command: &Command, alone: bool) -> Result<&'static str> {
        let words = tag(command);
        match command {
            Command::Maintenance { command: "CHECKPOINT", .. } => {
                self.checkpoint().await?;
                return Ok(words);
            }
            Command::Maintenance { .. } => {
                self.maintain(command, alone)?;
                if let Some(alter) = self.clustering(command)? {
                    self.change_definition(&Command::AlterRelation(Box::new(alter)), words).await?;
                }
                return Ok(words);
            }
            Command::Database(statement)
                if matches!(
                    **statement,
                    DatabaseStatement::Create { .. } | DatabaseStatement::Drop { .. }
                ) =>
            {
                super::maintenance::require_alone(alone && self.block != Block::Explicit, words)?;
            }
            Command::AlterSettings(alter) => {
                self.alter_settings(alter).await?;
                return Ok(words);
            }
            Command::SetConstraints { names, deferred } => {
                self.set_constraints(names.as_deref(), *deferred).await?;
                return Ok(words);
            }
            Command::CreateRoutine(create) => {
                self.create_routine(create, words).await?;
                return Ok(words);
            }
            Command::CreateSequence { .. }
            | Command::AlterSequence { .. }
            | Command::AlterRelation(_)
            | Command::DropRoutine(_)
            | Command::Role(_)
            | Command::Database(_)
            | Command::Grant(_)
            | Command::DefaultPrivileges(_)
            | Command::Owner(_)
            | Command::Comment(_)
            | Command::Domain(_)
            | Command::CreateSchema(_) => {}
            other => return Err(unsupported(other)),
        }
        self.change_definition(command, words).await?;
        Ok(words)
    }

    /// DDL that the parser crate does not know.
    async fn change_definition(&mut self, command: &Command, words: &'static str) -> Result<()> {
        self.await_slow_node().await?;
        self.open_transaction(false);
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        work.require_writable(words)?;
        work.hold_own_role().await?;
        work.carry_out_command(command).await
    }

    /// CHECKPOINT: what is committed moves to the base store, and the log is cut.
    async fn checkpoint(&mut self) -> Result<()> {
        let (catalog, _) = self.catalog_with_state();
        if self.facts.rights(&catalog).is_some_and(|rights| !rights.has(CHECKPOINT_OID)) {
            let message = "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT";
            return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message));
        }
        self.in_background(|engine| engine.checkpoint()).await
    }

    /// Has something done that blocks, by another thread.
    pub(super) async fn in_background<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Database) -> std::result::Result<T, cognate_engine::Error> + Send + 'static,
    ) -> Result<T> {
        let engine = self.database.engine().clone();
        let outcome = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime
                .spawn_blocking(move || work(&engine))
                .await
                .map_err(|error| SqlError::internal(format!("a thread ended: {error}")))?,
            // Without a runtime there is nobody else on this thread.
            Err(_) => work(&engine),
        };
        Ok(outcome?)
    }

    /// LOCK TABLE.
    async fn lock_tables_as(&mut self, lock: &ast::Lock, statement: &Statement) -> Result<()> {
        if !self.shares_block(statement) {
            return Err(SqlError::new(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        let mode = tree_mode(lock.lock_mode.as_ref());
        self.await_safe_snapshot().await?;
        self.open_ahead();
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        for target in &lock.tables {
            work.lock_table_as(&target.name, mode, lock.nowait).await?;
        }
        // What the wait was for is to be seen, also where reads are at the durable mark.
        if self.open.as_ref().is_some_and(|open| open.engine.access() == Access::ReadOnly) {
            self.facts.rest_on_everything();
            self.await_durable().await?;
        }
        self.open_ahead();
        Ok(())
    }

    /// PREPARE.
    fn prepare_sql(
        &mut self,
        name: String,
        types: &[ast::DataType],
        inner: &ast::Statement,
        statement: &Statement,
    ) -> Result<()> {
        self.check_name_free(&name)?;
        let declared = types
            .iter()
            .map(|ty| crate::bind::resolve_type(ty, &self.format).map(Some))
            .collect::<Result<_>>()?;
        let prepared = self.plan_prepared(Some(statement.prepares(inner)), declared)?;
        prepared.keep(self.database.statement_budget())?;
        let named = Named::new(&self.facts, &name, Arc::new(prepared), true);
        self.statements.insert(name, named);
        self.commits += 1;
        Ok(())
    }

    /// Gives a prepared statement a name in this session. 42P05 if the name is taken, 54000 if
    /// there are too many.
    pub fn name_statement(&mut self, name: String, prepared: Arc<Prepared>) -> Result<()> {
        self.check_name_free(&name)?;
        prepared.keep(self.database.statement_budget())?;
        let named = Named::new(&self.facts, &name, prepared, false);
        self.statements.insert(name, named);
        Ok(())
    }

    fn check_name_free(&self, name: &str) -> Result<()> {
        if self.statements.contains_key(name) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        if self.statements.len() >= STATEMENTS_MAX {
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many prepared statements")
                .with_hint("Deallocate those that are not needed any more."));
        }
        Ok(())
    }

    /// Forgets a named statement, if there is one.
    pub fn forget_statement(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// A named statement, made by PREPARE or by a client's protocol. 26000.
    pub fn named_statement(&self, name: &str) -> Result<&Arc<Prepared>> {
        self.statements.get(name).map(|named| &named.prepared).ok_or_else(|| {
            SqlError::new(
                sqlstate::INVALID_SQL_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            )
        })
    }

    fn deallocate(&mut self, name: &ast::Ident) -> Result<&'static str> {
        self.commits += 1;
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.statements.clear();
            self.own_plans.clear();
            return Ok("DEALLOCATE ALL");
        }
        let name = fold(name);
        self.named_statement(&name)?;
        self.statements.remove(&name);
        Ok("DEALLOCATE")
    }
}

impl Work<'_> {
    /// Carries out what changes definitions, privileges and roles, and the parser crate does not
    /// know.
    async fn carry_out_command(&mut self, command: &Command) -> Result<()> {
        match command {
            Command::CreateSequence { name, if_not_exists, temporary, options } => {
                self.create_sequence(name, *if_not_exists, *temporary, options).await?;
            }
            Command::AlterSequence { name, if_exists, change } => {
                self.alter_sequence(name, *if_exists, change).await?;
            }
            Command::AlterRelation(alter) => self.alter_relation(alter).await?,
            Command::DropRoutine(drop) => self.drop_routines(drop).await?,
            Command::Domain(statement) => self.domain_statement(statement).await?,
            Command::CreateSchema(create) => Box::pin(self.create_schema_with(create)).await?,
            Command::Role(statement) => self.role_statement(statement).await?,
            Command::Database(statement) => Box::pin(self.database_statement(statement)).await?,
            Command::Grant(statement) => self.grant(statement).await?,
            Command::DefaultPrivileges(statement) => self.default_privileges(statement).await?,
            Command::Owner(statement) => self.owner_statement(statement).await?,
            Command::Comment(statement) => self.comment_statement(statement).await?,
            _ => {}
        }
        Ok(())
    }

    /// Carries out a statement of DDL. 0A000 names one that is not supported.
    pub(super) async fn define(&mut self, sql: &ast::Statement) -> Result<()> {
        use ast::Statement as S;
        match sql {
            S::CreateTable(create) => self.create_table(create).await.map(drop),
            S::CreateIndex(create) => self.create_index(create).await.map(drop),
            S::CreateView(create) => self.create_view(create).await,
            S::CreateExtension(create) => self.create_extension(create).await,
            S::DropExtension(drop) => self.drop_extensions(drop).await,
            S::CreateSchema {
                schema_name, if_not_exists, with: None, options: None, clone: None, ..
            } => self.create_schema(schema_name, *if_not_exists).await,
            S::CreateType { name, representation } => self.create_type(name, representation.as_ref()).await,
            S::AlterType(alter) => self.alter_type_definition(alter).await,
            S::AlterSchema(alter) => self.alter_schema(alter).await,
            S::AlterTable(alter) => self.alter_table(alter).await,
            S::AlterIndex { name, operation: ast::AlterIndexOperation::RenameIndex { index_name } } => {
                let name = Qualified::from_object_name(name)?;
                self.require_usage(&name)?;
                let found = self.find(&name).ok_or_else(|| crate::ddl::resolve::undefined_table(&name))?;
                let relation = self.held(&name, &found).await?;
                self.rename_relation(&relation, single(index_name)?).await
            }
            S::Drop { object_type, if_exists, names, cascade, .. } => {
                self.drop(object_type, names, *if_exists, *cascade).await
            }
            S::Truncate(truncate) => self.truncate(truncate).await,
            S::Comment { object_type, object_name, comment, .. } => {
                self.comment(*object_type, object_name, comment.as_deref()).await
            }
            other => Err(unsupported(&Command::Sql(Box::new(other.clone())))),
        }
    }

    async fn drop(
        &mut self,
        kind: &ast::ObjectType,
        names: &[ast::ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        match kind {
            ast::ObjectType::Table => self.drop_relations("table", names, if_exists, cascade).await,
            ast::ObjectType::View => self.drop_relations("view", names, if_exists, cascade).await,
            ast::ObjectType::Sequence => self.drop_relations("sequence", names, if_exists, cascade).await,
            ast::ObjectType::Index => self.drop_indexes(names, if_exists, cascade).await,
            ast::ObjectType::Type => self.drop_types(Dropped::Types, names, if_exists, cascade).await,
            ast::ObjectType::Schema => self.drop_schemas(names, if_exists, cascade).await,
            other => Err(SqlError::unsupported(format_args!("DROP {other}"))),
        }
    }

    async fn lock_table_as(&mut self, name: &ast::ObjectName, mode: TreeMode, nowait: bool) -> Result<()> {
        let name = Qualified::from_object_name(name)?;
        let table = self.table(&name)?;
        self.require_any(&table, lock_privileges(mode))?;
        self.state.is_temporary |= table.temporary;
        if !nowait {
            return self.lock_table(table.oid, mode).await;
        }
        let request = self.engine.lock_tree(table.oid, mode, cognate_engine::WaitPolicy::NoWait);
        self.interrupts.lock(request).await.map_err(|error| match error.sqlstate {
            sqlstate::LOCK_NOT_AVAILABLE => SqlError::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                format!("could not obtain lock on relation \"{}\"", table.name),
            ),
            _ => error,
        })?;
        self.lock_table(table.oid, mode).await
    }
}

/// One of these is asked for a lock of a mode.
fn lock_privileges(mode: TreeMode) -> Privileges {
    let changes = Privileges::UPDATE | Privileges::DELETE | Privileges::TRUNCATE;
    match mode {
        TreeMode::Read => changes | Privileges::SELECT,
        TreeMode::Write => changes | Privileges::INSERT,
        _ => changes,
    }
}

/// The lock a mode of LOCK TABLE means here; ACCESS EXCLUSIVE if none is said.
fn tree_mode(mode: Option<&ast::LockTableMode>) -> TreeMode {
    use ast::LockTableMode as Mode;
    match mode {
        Some(Mode::AccessShare) => TreeMode::Read,
        Some(Mode::RowShare) => TreeMode::RowShare,
        Some(Mode::RowExclusive) => TreeMode::Write,
        Some(Mode::ShareUpdateExclusive) => TreeMode::ShareUpdateExclusive,
        Some(Mode::Share) => TreeMode::Share,
        Some(Mode::ShareRowExclusive) => TreeMode::ShareRowExclusive,
        Some(Mode::Exclusive) => TreeMode::ReadersOnly,
        Some(Mode::AccessExclusive) | None => TreeMode::Exclusive,
    }
}
