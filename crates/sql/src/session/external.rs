//! Functions that need the session or the catalog: sequences, orders to other sessions, advisory
//! locks, notifications.

use std::sync::Arc;

use cognate_engine::{ReadView, Transaction};

use super::advisory::Functions;
use super::facts::Facts;
use super::interrupt::Interrupts;
use super::outcome::{outcome, outcome_for_good};
use super::presence::{Order, order};
use crate::catalog::{Catalog, Privileges, Relation, Securable, Sequence};
use crate::ddl::permission::denied;
use crate::ddl::temporary::of_another_session;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::ExternalFunctions;
use crate::function::{EvalContext, Function, IDENTITY_NEXTVAL};
use crate::types::Datum;
use crate::types::snapshot::Snapshot;

/// The session's functions.
pub(crate) struct External<'a> {
    pub(crate) facts: &'a Arc<Facts>,
    pub(crate) catalog: &'a Arc<Catalog>,
    /// The transaction must not write, and so not count on either.
    pub(crate) read_only: bool,
    /// What the statement reads, if it reads anything, and the stamp of the transaction's own
    /// changes to the catalog.
    pub(crate) view: Option<&'a ReadView>,
    pub(crate) stamp: u64,
    /// What its waits are for, and what ends them.
    pub(crate) transaction: Option<&'a Transaction>,
    pub(crate) interrupts: &'a Arc<Interrupts>,
}

impl ExternalFunctions for External<'_> {
    fn call(
        &self,
        function: &'static Function,
        arguments: &[Datum],
        context: &EvalContext<'_>,
    ) -> Result<Datum> {
        let _ = context;
        if let ("pg_notify", [channel, payload]) = (function.name, arguments) {
            let text = |value: &Datum| value.as_str().unwrap_or_default().to_owned();
            let (channel, payload) = (text(channel), text(payload));
            let budget = self.facts.database.statement_budget();
            self.facts.news.notify(self.facts.process_id, (&channel, &payload), budget)?;
            return Ok(Datum::text(""));
        }
        if arguments.iter().any(Datum::is_null) {
            return Ok(Datum::Null);
        }
        match (function.name, arguments) {
            ("nextval", [sequence]) => self.nextval(sequence, true).map(Datum::Int8),
            (name, [sequence]) if name == IDENTITY_NEXTVAL.name => {
                self.nextval(sequence, false).map(Datum::Int8)
            }
            ("currval", [sequence]) => self.currval(sequence).map(Datum::Int8),
            ("lastval", []) => self.lastval().map(Datum::Int8),
            ("setval", [sequence, Datum::Int8(value)]) => {
                self.setval(sequence, *value, true).map(Datum::Int8)
            }
            ("setval", [sequence, Datum::Int8(value), Datum::Bool(is_called)]) => {
                self.setval(sequence, *value, *is_called).map(Datum::Int8)
            }
            ("pg_cancel_backend", [Datum::Int4(id)]) => {
                order(self.facts, *id, Order::Cancel).map(Datum::Bool)
            }
            ("pg_terminate_backend", [Datum::Int4(id)]) => {
                order(self.facts, *id, Order::Terminate).map(Datum::Bool)
            }
            ("cognate_digest", [Datum::Int8(position)]) => {
                let digest = super::cluster::digest(&self.facts.database, *position);
                Ok(digest.map_or(Datum::Null, |digest| Datum::Text(digest.into())))
            }
            ("cognate_outcome", [Datum::Text(id)]) => {
                Ok(Datum::Text(outcome(&self.facts.database, id.as_str()).into()))
            }
            ("cognate_outcome", [Datum::Text(id), Datum::Text(token)]) => {
                let (database, interrupts) = (&self.facts.database, &**self.interrupts);
                let (id, token) = (id.as_str(), token.as_str());
                let told = outcome_for_good(database, interrupts, self.transaction, id, token)?;
                Ok(Datum::Text(told.into()))
            }
            ("cognate_token", []) => {
                let database = &self.facts.database;
                let token = database.nodes().token(database.engine().applied());
                Ok(token.map_or(Datum::Null, |token| Datum::Text(token.into())))
            }
            ("current_query", []) => {
                let text = self.facts.activity.look().text;
                Ok(text.map_or(Datum::Null, |text| Datum::text(&*text)))
            }
            ("pg_export_snapshot", []) => self.export_snapshot(),
            ("pg_current_snapshot" | "txid_current_snapshot", []) => self.snapshot_ids(function.name),
            ("pg_get_serial_sequence", [table, column]) => self.serial_sequence(table, column),
            _ => {
                let Self { facts, interrupts, transaction, .. } = *self;
                let advisory = Functions { facts, interrupts, transaction };
                let called = advisory.call(function.name, arguments)?;
                called.ok_or_else(|| SqlError::unsupported(format_args!("function {}", function.name)))
            }
        }
    }

    fn shown_catalog(&self) -> Result<Option<Arc<Catalog>>> {
        let database = &self.facts.database;
        let changed = database.catalog_csn();
        let Some(view) = self.view.filter(|view| changed > view.snapshot()) else { return Ok(None) };
        let key = (view.snapshot(), self.stamp);
        if let Some(known) = self.facts.shown_catalog(key) {
            return Ok(Some(known));
        }
        let shown = Arc::new(database.catalog_at(view)?);
        self.facts.keep_shown_catalog(key, &shown);
        Ok(Some(shown))
    }
}

impl External<'_> {
    fn export_snapshot(&self) -> Result<Datum> {
        let transaction = self.transaction.ok_or_else(|| SqlError::internal("no transaction is open"))?;
        let database = &self.facts.database;
        let name = database.exports().lend(transaction, database.engine().durable())?;
        Ok(Datum::Text(name.into()))
    }

    /// What is known of the transactions that the statement's snapshot shows, by their ids.
    fn snapshot_ids(&self, function: &str) -> Result<Datum> {
        let engine = self.facts.database.engine();
        if engine.is_node() {
            return Err(SqlError::unsupported(format_args!("{function}() at a node of a cluster"))
                .with_detail("The ids that nodes give to transactions are in no common order of time."));
        }
        let seen = self.view.map(ReadView::snapshot).or(self.transaction.map(Transaction::snapshot));
        let seen = seen.ok_or_else(|| SqlError::internal("no snapshot is taken"))?;
        let ids = engine.ids_at(seen);
        let (xmin, own) = (ids.oldest(), self.facts.transaction());
        let running = ids.running.into_iter().filter(|id| *id != own).collect();
        Ok(Datum::Text(Snapshot { xmin, xmax: ids.next, running }.to_string().into()))
    }

    fn sequence(&self, oid: &Datum) -> Result<&Arc<Sequence>> {
        let Datum::Oid(oid) = oid else {
            return Err(SqlError::internal("a sequence is named by a regclass"));
        };
        match self.catalog.relation_by_oid(*oid) {
            Some(Relation::Sequence(sequence))
                if sequence.is_temporary() && !self.facts.temporary.is_own(sequence.schema) =>
            {
                Err(of_another_session())
            }
            Some(Relation::Sequence(sequence)) => Ok(sequence),
            Some(other) => Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{}\" is not a sequence", other.name()),
            )),
            None => Err(SqlError::new(
                sqlstate::UNDEFINED_TABLE,
                format!("could not open relation with OID {oid}"),
            )),
        }
    }

    /// 25006 in a read-only transaction.
    fn require_writable(&self, function: &str) -> Result<()> {
        if !self.read_only {
            return Ok(());
        }
        Err(SqlError::new(
            sqlstate::READ_ONLY_SQL_TRANSACTION,
            format!("cannot execute {function} in a read-only transaction"),
        ))
    }

    /// 42501 unless the session has one of these privileges on a sequence.
    fn require_any(&self, sequence: &Sequence, wanted: Privileges) -> Result<()> {
        let Some(rights) = self.facts.rights(self.catalog).filter(|_| !sequence.is_temporary()) else {
            return Ok(());
        };
        match self.catalog.privileges(&rights, sequence.oid, Securable::Sequence, wanted).is_empty() {
            true => Err(denied(format!("permission denied for sequence {}", sequence.name))),
            false => Ok(()),
        }
    }

    /// `is_asked`: of who may have a number. An identity column's own gives its numbers to whoever
    /// may insert.
    fn nextval(&self, sequence: &Datum, is_asked: bool) -> Result<i64> {
        let sequence = self.sequence(sequence)?;
        if is_asked {
            self.require_any(sequence, Privileges::USAGE | Privileges::UPDATE)?;
        }
        if sequence.is_temporary() {
            let value = self.facts.temporary.next(sequence)?;
            self.facts.note_sequence(sequence.oid, value, true);
            return Ok(value);
        }
        self.require_writable("nextval()")?;
        if let Some(fixed) = self.facts.fixed() {
            let value = fixed.next(sequence)?;
            self.facts.note_sequence(sequence.oid, value, true);
            return Ok(value);
        }
        let next = self.facts.database.counters().next(sequence)?;
        self.facts.rest_on(next.stored_at);
        self.facts.note_sequence(sequence.oid, next.value, true);
        Ok(next.value)
    }

    fn currval(&self, sequence: &Datum) -> Result<i64> {
        let sequence = self.sequence(sequence)?;
        self.require_any(sequence, Privileges::SELECT | Privileges::USAGE)?;
        self.facts.current_value(sequence.oid).ok_or_else(|| {
            SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{}\" is not yet defined in this session", sequence.name),
            )
        })
    }

    fn lastval(&self) -> Result<i64> {
        let last = self.facts.last_value().filter(|(oid, _)| self.catalog.sequence_by_oid(*oid).is_some());
        if let Some(sequence) = last.and_then(|(oid, _)| self.catalog.sequence_by_oid(oid)) {
            self.require_any(sequence, Privileges::SELECT | Privileges::USAGE)?;
        }
        last.map(|(_, value)| value).ok_or_else(|| {
            SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "lastval is not yet defined in this session",
            )
        })
    }

    fn setval(&self, sequence: &Datum, value: i64, is_called: bool) -> Result<i64> {
        let sequence = self.sequence(sequence)?;
        self.require_any(sequence, Privileges::UPDATE)?;
        if !sequence.is_temporary() {
            self.require_writable("setval()")?;
        }
        if !(sequence.minimum..=sequence.maximum).contains(&value) {
            return Err(SqlError::new(
                sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    sequence.name, sequence.minimum, sequence.maximum
                ),
            ));
        }
        if sequence.is_temporary() {
            self.facts.temporary.set(sequence, value, is_called);
        } else {
            let set = self.facts.database.counters().set(sequence, value, is_called)?;
            self.facts.rest_on(set.stored_at);
        }
        if is_called {
            self.facts.note_sequence(sequence.oid, value, false);
        }
        Ok(value)
    }

    fn serial_sequence(&self, table: &Datum, column: &Datum) -> Result<Datum> {
        let (Some(table), Some(column)) = (table.as_str(), column.as_str()) else { return Ok(Datum::Null) };
        let names = crate::identifier::split_qualified(table)?;
        let path = self.facts.lookup_path(self.catalog);
        let relation = match names.as_slice() {
            [name] => self.catalog.find(&path, None, name),
            [schema, name] => self.catalog.find(&path, Some(schema), name),
            _ => None,
        };
        let Some(table) = relation.and_then(Relation::as_table) else {
            return Err(SqlError::new(
                sqlstate::UNDEFINED_TABLE,
                format!("relation \"{table}\" does not exist"),
            ));
        };
        let Some(place) = table.column_place(column) else {
            return Err(SqlError::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("column \"{column}\" of relation \"{}\" does not exist", table.name),
            ));
        };
        let sequence = table.columns[place].sequence.and_then(|oid| self.catalog.sequence_by_oid(oid));
        Ok(sequence.map_or(Datum::Null, |sequence| {
            let quote = crate::identifier::quote_identifier;
            Datum::from(format!("{}.{}", quote(&sequence.schema_name), quote(&sequence.name)))
        }))
    }
}
