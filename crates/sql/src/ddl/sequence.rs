//! CREATE, ALTER and DROP SEQUENCE, and the sequences of serial and identity columns.

use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_table::column_place;
use super::names::Qualified;
use crate::bind::resolve_built_in;
use crate::catalog::{Identity, Object, Oid, Relation, Schema, Sequence};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{AlterSequence, IdentityChange, SequenceOptions, sequence_name_of};
use crate::pg_catalog::ServerView;
use crate::session::work::Work;
use crate::types::{Type, TypeId};

/// A column default that takes the next value of a sequence. The sequence is named by its oid, so
/// renaming it changes nothing here; whoever shows a default replaces the oid by the name.
pub(crate) fn nextval(sequence: u32) -> String {
    format!("nextval('{sequence}'::regclass)")
}

/// The sequences whose next values a stored default takes.
pub(crate) fn sequences_in(default: &str) -> impl Iterator<Item = Oid> {
    default.split("nextval('").skip(1).filter_map(|rest| rest[..rest.find('\'')?].parse().ok())
}

fn bounds(ty: Type) -> (i64, i64) {
    match ty.id {
        TypeId::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        TypeId::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

/// 22023 if no column of this type can be an identity column; a domain's cannot.
pub(super) fn check_identity_type(ty: Type) -> Result<()> {
    match ty.id.is_integer() && ty.domain_named().is_none() {
        true => Ok(()),
        false => Err(invalid("identity column type must be smallint, integer, or bigint")),
    }
}

/// Options of an identity column, from the syntax tree's.
pub(crate) fn identity_options(options: &[ast::SequenceOptions]) -> Result<SequenceOptions> {
    let number = |expression: &ast::Expr| {
        let text = expression.to_string().replace(' ', "");
        let text = sequence_name_of(&text).0.unwrap_or_default();
        text.parse::<i64>().map_err(|_| SqlError::syntax(format!("syntax error at or near \"{text}\"")))
    };
    let optional = |expression: &Option<ast::Expr>| expression.as_ref().map(number).transpose();
    let mut parsed = SequenceOptions::default();
    for option in options {
        match option {
            ast::SequenceOptions::IncrementBy(value, _) => parsed.increment = Some(number(value)?),
            ast::SequenceOptions::MinValue(value) => parsed.minimum = Some(optional(value)?),
            ast::SequenceOptions::MaxValue(value) => parsed.maximum = Some(optional(value)?),
            ast::SequenceOptions::StartWith(value, _) => parsed.start = Some(number(value)?),
            ast::SequenceOptions::Cache(value) => {
                let text = value.to_string();
                let (cache, name) = sequence_name_of(&text);
                parsed.cache = cache.map(|_| number(value)).transpose()?;
                if !name.is_empty() {
                    parsed.name = Some(name.into_iter().map(str::to_owned).collect());
                }
            }
            // The parser's flag says NO CYCLE.
            ast::SequenceOptions::Cycle(no) => parsed.cycle = Some(!no),
        }
    }
    Ok(parsed)
}

impl Work<'_> {
    /// The name of a new sequence of a column: the one that is asked for, or one that is made up.
    /// 55000 if it is to be in another schema than the table.
    pub(crate) fn column_sequence_name(
        &self,
        schema: &Schema,
        table: &str,
        column: &str,
        options: &SequenceOptions,
    ) -> Result<String> {
        let (wanted, name) = match options.name.as_deref() {
            None => {
                let taken = |name: &str| self.is_taken(&schema.name, name);
                return Ok(super::names::make_up(table, column, "seq", taken));
            }
            Some([name]) => (None, name),
            Some([.., wanted, name]) => (Some(wanted), name),
            Some([]) => return Err(SqlError::internal("a sequence's name has no parts")),
        };
        match wanted {
            Some(wanted) if *wanted != schema.name => Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "sequence must be in same schema as table it is linked to",
            )),
            _ => Ok(name.clone()),
        }
    }

    /// CREATE SEQUENCE. True unless it existed already and IF NOT EXISTS was said.
    pub(crate) async fn create_sequence(
        &mut self,
        name: &ast::ObjectName,
        if_not_exists: bool,
        temporary: bool,
        options: &SequenceOptions,
    ) -> Result<bool> {
        let name = Qualified::from_object_name(name)?;
        let schema = self.creation_schema(&name, temporary)?;
        let role = self.facts.role(&self.catalog);
        let owner = match options.owned_by.as_ref() {
            Some(Some(column)) => Some(self.owning_column(column, schema.oid, role).await?),
            _ => None,
        };
        let ty = match &options.data_type {
            Some(data_type) => resolve_built_in(data_type)?,
            None => Type::new(TypeId::Int8),
        };
        match self.make_sequence(&schema, &name.name, ty, options, owner, false).await {
            Ok(oid) => {
                if let Some(column) = owner {
                    self.link_to_column(column, oid)?;
                }
                Ok(true)
            }
            Err(error) if if_not_exists && error.sqlstate == sqlstate::DUPLICATE_TABLE => {
                let message = format!("relation \"{}\" already exists, skipping", name.name);
                self.notice(SqlError::notice(message).with_sqlstate(sqlstate::DUPLICATE_TABLE));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a sequence; its oid.
    pub(crate) async fn make_sequence(
        &mut self,
        schema: &Schema,
        name: &str,
        ty: Type,
        options: &SequenceOptions,
        owner: Option<(u32, usize)>,
        identity: bool,
    ) -> Result<u32> {
        if !ty.id.is_integer() {
            return Err(invalid("sequence type must be smallint, integer, or bigint"));
        }
        self.claim_name(schema, name).await?;
        let oid = self.allocate_oid()?;
        let mut sequence = Sequence {
            oid,
            schema: schema.oid,
            schema_name: schema.name.clone(),
            name: name.to_owned(),
            ty,
            start: 0,
            increment: 1,
            minimum: 0,
            maximum: 0,
            cache: 1,
            cycle: false,
            counter: oid,
            counter_start: 0,
            counter_called: false,
            owner,
            identity,
            comment: None,
        };
        apply(&mut sequence, options, true)?;
        sequence.counter_start = sequence.start;
        self.change(Object::Sequence(sequence.into()))?;
        // Whoever gives a column to a table that there is: its sequence is of the table's owner.
        if let Some((table, _)) = owner.filter(|(table, _)| self.catalog.table_by_oid(*table).is_some()) {
            let of_table = self.catalog.owner(table);
            self.set_owner(oid, of_table)?;
        }
        Ok(oid)
    }

    /// ALTER SEQUENCE. True unless it does not exist and IF EXISTS was said.
    pub(crate) async fn alter_sequence(
        &mut self,
        name: &ast::ObjectName,
        if_exists: bool,
        change: &AlterSequence,
    ) -> Result<bool> {
        let name = Qualified::from_object_name(name)?;
        let sequence = match self.sequence(&name) {
            Ok(sequence) => {
                self.require_relation_owner(&Relation::Sequence(sequence.clone()))?;
                self.locked_sequence(sequence.oid, &name).await?
            }
            Err(error) if if_exists && error.sqlstate == sqlstate::UNDEFINED_TABLE => {
                self.notice(SqlError::notice(format!("relation \"{}\" does not exist, skipping", name.name)));
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let mut sequence = Sequence::clone(&sequence);
        match change {
            AlterSequence::Options(options) => self.change_options(&mut sequence, options).await?,
            AlterSequence::Rename(new) => {
                let sequence = Relation::Sequence(sequence.into());
                return self.rename_relation(&sequence, fold(new)).await.map(|()| true);
            }
            AlterSequence::SetSchema(schema) => {
                let sequence = Relation::Sequence(sequence.into());
                return self.set_schema(&sequence, &fold(schema)).await.map(|()| true);
            }
        }
        self.change(Object::Sequence(sequence.into()))?;
        Ok(true)
    }

    /// Gives an identity column's sequence the column's new type.
    pub(crate) async fn retype_sequence(&mut self, oid: u32, data_type: &ast::DataType) -> Result<()> {
        self.lock_table(oid, TreeMode::Exclusive).await?;
        let Some(sequence) = self.catalog.sequence_by_oid(oid) else { return Ok(()) };
        let mut sequence = Sequence::clone(sequence);
        let options = SequenceOptions { data_type: Some(data_type.clone()), ..SequenceOptions::default() };
        self.change_options(&mut sequence, &options).await?;
        self.change(Object::Sequence(sequence.into()))
    }

    /// DROP IDENTITY of a column, SET GENERATED, and what is said of its sequence. 55000 if it is
    /// no identity column.
    pub(super) async fn alter_identity(
        &mut self,
        oid: Oid,
        name: &str,
        change: IdentityChange,
    ) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        let place = column_place(&table, name)?;
        let column = &table.columns[place];
        let Some(sequence) = column.sequence.filter(|_| column.identity.is_some()) else {
            let what = format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name);
            if matches!(change, IdentityChange::Drop { if_there: true }) {
                self.notice(SqlError::notice(what + ", skipping"));
                return Ok(());
            }
            return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, what));
        };
        match change {
            IdentityChange::Drop { .. } => {
                let other = self.other_sequence((oid, place), sequence);
                let column = &mut table.columns[place];
                (column.identity, column.default, column.sequence) = (None, None, other);
                self.change(Object::Table(table.into()))?;
                self.drop_owned_objects(&[sequence], false).await
            }
            IdentityChange::Alter { always, options } => {
                if let Some(always) = always {
                    let kind = if always { Identity::Always } else { Identity::ByDefault };
                    table.columns[place].identity = Some(kind);
                    self.change(Object::Table(table.into()))?;
                }
                self.lock_table(sequence, TreeMode::Exclusive).await?;
                let Some(sequence) = self.catalog.sequence_by_oid(sequence) else { return Ok(()) };
                let mut sequence = Sequence::clone(sequence);
                self.change_options(&mut sequence, &options).await?;
                self.change(Object::Sequence(sequence.into()))
            }
        }
    }

    async fn locked_sequence(&mut self, oid: u32, name: &Qualified) -> Result<Arc<Sequence>> {
        self.lock_table(oid, TreeMode::Exclusive).await?;
        self.sequence(name)
    }

    async fn change_options(&mut self, sequence: &mut Sequence, options: &SequenceOptions) -> Result<()> {
        if let Some(data_type) = &options.data_type {
            let ty = resolve_built_in(data_type)?;
            if !ty.id.is_integer() {
                return Err(invalid("sequence type must be smallint, integer, or bigint"));
            }
            // Bounds that were the old type's become the new type's.
            let ((old_low, old_high), (low, high)) = (bounds(sequence.ty), bounds(ty));
            sequence.minimum = if sequence.minimum == old_low { low } else { sequence.minimum };
            sequence.maximum = if sequence.maximum == old_high { high } else { sequence.maximum };
            sequence.ty = ty;
        }
        let was_ascending = sequence.increment > 0;
        apply(sequence, options, false)?;
        let turns = was_ascending != (sequence.increment > 0);
        let has_new_bounds =
            options.data_type.is_some() || options.minimum.is_some() || options.maximum.is_some();
        if let Some(restart) = options.restart {
            let start = restart.unwrap_or(sequence.start);
            check_inside("RESTART", start, sequence)?;
            self.restart(sequence, start)?;
        } else if (has_new_bounds || turns)
            && let Some((last, is_called)) = self.facts.sequence_state(sequence)
        {
            if has_new_bounds {
                // Where it stands is a value that it could be restarted with.
                check_inside("RESTART", last, sequence)?;
            }
            if turns {
                self.restart(sequence, last)?;
                sequence.counter_called = is_called;
            }
        }
        if let Some(owned_by) = &options.owned_by {
            if sequence.identity {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "cannot change ownership of identity sequence",
                ));
            }
            if let Some(column) = sequence.owner.take() {
                self.lock_table(column.0, TreeMode::ShareUpdateExclusive).await?;
                self.unlink_from_column(column, sequence.oid)?;
            }
            if let Some(column) = owned_by {
                let role = self.catalog.owner(sequence.oid);
                let column = self.owning_column(column, sequence.schema, role).await?;
                self.link_to_column(column, sequence.oid)?;
                sequence.owner = Some(column);
            }
        }
        Ok(())
    }

    /// Lets a sequence go on at `start`, by a counter of its own, so that it can be rolled back.
    pub(crate) fn restart(&mut self, sequence: &mut Sequence, start: i64) -> Result<()> {
        sequence.counter = self.allocate_oid()?;
        (sequence.counter_start, sequence.counter_called) = (start, false);
        Ok(())
    }

    /// The column that a sequence is to belong to, which is in this schema and this role's. 55000
    /// for a table that is not. The table is held, as its definition changes by it: whoever reads
    /// and writes its rows goes on.
    async fn owning_column(
        &mut self,
        name: &ast::ObjectName,
        schema: Oid,
        role: Oid,
    ) -> Result<(u32, usize)> {
        let parts = super::names::parts(name)?;
        let (column, table) = match parts.as_slice() {
            [table, column] => (column, Qualified::plain(table)),
            [schema, table, column] => (column, Qualified::within(schema, table)),
            _ => {
                return Err(SqlError::syntax("invalid OWNED BY option")
                    .with_hint("Specify OWNED BY table.column or OWNED BY NONE."));
            }
        };
        let table = self.locked_table(&table, TreeMode::ShareUpdateExclusive).await?;
        let unfit = |message: &str| Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        // Temporary tables are the session's, and so are their sequences.
        if !table.temporary && self.catalog.owner(table.oid) != role {
            return unfit("sequence must have same owner as table it is linked to");
        }
        if table.schema != schema {
            return unfit("sequence must be in same schema as table it is linked to");
        }
        let place = table.column_place(column);
        let place = place.ok_or_else(|| super::resolve::undefined_column(column, &table.name))?;
        Ok((table.oid, place))
    }

    /// A column gets a sequence. Of several it knows the first: of a serial or identity column that
    /// is the one that its values come from.
    fn link_to_column(&mut self, (table, place): (u32, usize), sequence: u32) -> Result<()> {
        let known = self.catalog.table_by_oid(table).and_then(|table| table.columns[place].sequence);
        match known {
            Some(_) => Ok(()),
            None => self.set_column_sequence(table, place, Some(sequence)),
        }
    }

    /// A column loses a sequence. If it was the one that it knows, another one takes its place.
    fn unlink_from_column(&mut self, (table, place): (u32, usize), sequence: u32) -> Result<()> {
        let known = self.catalog.table_by_oid(table).and_then(|table| table.columns[place].sequence);
        if known != Some(sequence) {
            return Ok(());
        }
        self.set_column_sequence(table, place, self.other_sequence((table, place), sequence))
    }

    /// The first one of a column's other sequences.
    fn other_sequence(&self, column: (u32, usize), sequence: u32) -> Option<u32> {
        let owned = self.catalog.sequences().filter(|other| other.owner == Some(column));
        owned.map(|other| other.oid).filter(|other| *other != sequence).min()
    }

    fn set_column_sequence(&mut self, table: u32, place: usize, sequence: Option<u32>) -> Result<()> {
        let Some(table) = self.catalog.table_by_oid(table) else { return Ok(()) };
        let mut table = crate::catalog::Table::clone(table);
        table.columns[place].sequence = sequence;
        self.change(Object::Table(table.into()))
    }

    pub(crate) fn schema_of(&self, oid: u32) -> Result<Arc<Schema>> {
        let schema = self.catalog.schema_by_oid(oid).cloned();
        schema.ok_or_else(|| SqlError::new(sqlstate::INVALID_SCHEMA_NAME, "the schema was dropped"))
    }
}

/// Applies options to a definition; `fresh` if it has none yet.
fn apply(sequence: &mut Sequence, options: &SequenceOptions, fresh: bool) -> Result<()> {
    if let Some(increment) = options.increment {
        if increment == 0 {
            return Err(invalid("INCREMENT must not be zero"));
        }
        sequence.increment = increment;
    }
    let ascending = sequence.increment > 0;
    let (low, high) = bounds(sequence.ty);
    match options.maximum {
        Some(Some(maximum)) => sequence.maximum = maximum,
        Some(None) => sequence.maximum = if ascending { high } else { -1 },
        None if fresh => sequence.maximum = if ascending { high } else { -1 },
        None => {}
    }
    match options.minimum {
        Some(Some(minimum)) => sequence.minimum = minimum,
        Some(None) => sequence.minimum = if ascending { 1 } else { low },
        None if fresh => sequence.minimum = if ascending { 1 } else { low },
        None => {}
    }
    for (what, value) in [("MAXVALUE", sequence.maximum), ("MINVALUE", sequence.minimum)] {
        if !(low..=high).contains(&value) {
            return Err(invalid(format!(
                "{what} ({value}) is out of range for sequence data type {}",
                sequence.ty.id.sql_name()
            )));
        }
    }
    if sequence.minimum >= sequence.maximum {
        return Err(invalid(format!(
            "MINVALUE ({}) must be less than MAXVALUE ({})",
            sequence.minimum, sequence.maximum
        )));
    }
    match options.start {
        Some(start) => sequence.start = start,
        None if fresh => sequence.start = if ascending { sequence.minimum } else { sequence.maximum },
        None => {}
    }
    check_inside("START", sequence.start, sequence)?;
    if let Some(cache) = options.cache {
        if cache <= 0 {
            return Err(invalid(format!("CACHE ({cache}) must be greater than zero")));
        }
        sequence.cache = cache;
    }
    sequence.cycle = options.cycle.unwrap_or(sequence.cycle);
    Ok(())
}

fn check_inside(what: &str, value: i64, sequence: &Sequence) -> Result<()> {
    if value < sequence.minimum {
        return Err(invalid(format!(
            "{what} value ({value}) cannot be less than MINVALUE ({})",
            sequence.minimum
        )));
    }
    if value > sequence.maximum {
        return Err(invalid(format!(
            "{what} value ({value}) cannot be greater than MAXVALUE ({})",
            sequence.maximum
        )));
    }
    Ok(())
}
