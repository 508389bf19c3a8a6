//! The binder: from syntax trees to bound queries and expressions, by PostgreSQL's rules.
//!
//! It resolves names, operators and functions, settles the types of untyped literals and parameters
//! from where they stand, inserts conversions, folds constants, merges simple derived tables and
//! views into the query around them, and says in PostgreSQL's words what is wrong. What the
//! executor cannot do is refused by name with 0A000.
//!
//! One [`Binder`] binds one statement. Its state is a stack of query levels (see
//! [`expr`](crate::expr) for frames), the types of the parameters as far as they are known, and the
//! common table expressions in sight.
//!
//! Parameters: `$n` without a declared type is of type `Unknown` until something converts it; the
//! first conversion settles its type for the statement. One that nothing settles is 42P18.

mod access;
mod aggregate;
mod around;
mod call;
mod changed_view;
mod coerce;
mod computed;
mod domain;
mod expression;
mod frame;
mod from;
mod group;
mod group_set;
mod hidden;
mod hypothetical;
mod in_list;
mod json_record;
mod limit;
pub(crate) mod literal;
mod naming;
mod need;
mod operand;
mod operator;
mod order;
mod overload;
mod parts;
mod query;
mod quoted_query;
mod routine;
mod row_counts;
mod row_value;
mod scope;
mod select;
mod sequence_table;
mod set_operation;
mod sortable;
mod spread;
mod star;
mod subquery;
mod table;
mod table_function;
mod twice;
mod type_name;
mod updatable;
mod view_names;
mod virtual_table;
mod window;
mod with;
mod with_order;

pub use coerce::common_type;
pub(crate) use coerce::read_literal;
pub(crate) use computed::{BoundComputed, BoundIndex, bind_computed, bound_computed};
pub use frame::{Exclusion, Frame, FrameBound, FrameMode, Window, WindowCall};
pub(crate) use naming::nameable;
pub(crate) use need::names_columns;
pub use need::{Need, NeededColumns};
pub(crate) use operator::operator_name;
pub(crate) use operator::{row_items, starred_row};
pub(crate) use parts::{LockingQuery, all_rows};
pub use query::*;
pub(crate) use query::{MAX_RELATIONS, too_many_relations};
pub(crate) use routine::{Called, Form, alone};
#[cfg(test)]
pub(crate) use row_counts::MOST_TAKEN;
pub use row_counts::{ColumnValues, NoRowCounts, RowCounts};
pub(crate) use row_counts::{Taken, WithoutIndexes};
pub use scope::{name_parts, object_name};
pub(crate) use scope::{name_span, schema_and_name};
pub(crate) use select::lock_name;
pub(crate) use star::{Noted, pinned};
pub(crate) use subquery::refuse_subquery;
pub use table_function::{PartCall, RowsPart};
pub use type_name::resolve_type;
pub(crate) use type_name::{
    array as array_type, custom_name, name_without_schema, put_schema, resolve_built_in, schema_of_type,
};
pub(crate) use updatable::{BaseTable, FixedColumn, NoBaseTable, ViewColumn, base_table};
pub(crate) use view_names::{renamed, told};
pub use virtual_table::{NoVirtualTables, VirtualTable, VirtualTables};

use std::collections::HashSet;
use std::sync::Arc;

use sqlparser::ast::DataType;
use sqlparser::tokenizer::Span;

use crate::catalog::{Catalog, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{DomainCheck, RoutineBody};
use crate::function::EvalContext;
use crate::parse::character_position;
use crate::routine::Scope;
use crate::types::bounds::Unasked;
use crate::types::{Type, TypeId};
use scope::Namespace;

/// What binding depends on.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    /// The catalog names are looked up in.
    pub catalog: &'a Arc<Catalog>,
    /// Schemas searched for unqualified names, without the implicit `pg_catalog`.
    pub search_path: &'a [String],
    /// Settings that literals depend on.
    pub eval: EvalContext<'a>,
    /// Computed tables.
    pub virtual_tables: &'a dyn VirtualTables,
    /// Estimates for the planner.
    pub row_counts: &'a dyn RowCounts,
    /// The text the statement came in, for positions; may be empty.
    pub source: &'a Arc<str>,
}

/// Binds one statement.
pub struct Binder<'a> {
    /// What binding depends on.
    pub context: &'a BindContext<'a>,
    /// Search path in force: that of a view while its query is bound.
    search_path: Vec<String>,
    parameters: Vec<Option<Type>>,
    levels: Vec<Level>,
    /// Levels before this one are out of sight (around a view).
    barrier: usize,
    ctes: Vec<with::CteInSight>,
    /// What stands around the expression being bound in which a recursive query must not refer to
    /// itself, inside out.
    around: Vec<&'static str>,
    cte_count: usize,
    /// The parts of the statement that are run one by one.
    parts: parts::Parts,
    tables: Vec<Arc<Table>>,
    /// What the statement needs to be allowed.
    needs: Vec<Need>,
    acting: need::Acting,
    /// Oids of the views.
    views: Vec<u32>,
    /// Oids of the types of users that are named.
    user_types: Vec<u32>,
    /// The columns that NATURAL compares, which stand in no text.
    natural_columns: Vec<String>,
    /// Constraints of domains by oid; none while they are being bound.
    domains: Vec<(u32, Option<Arc<DomainCheck>>)>,
    view_depth: usize,
    /// The view whose text is bound; 0 is the statement itself.
    text: u32,
    /// Where a query turned out not to be what it was first bound as: the text, line and column.
    /// Who binds it once more, with what is around it, does not try that again: work would double
    /// with each query that is within another one.
    tried: HashSet<(u32, u64, u64)>,
    /// The view that the statement changes, while it is bound.
    changed_view: Option<changed_view::ChangedView>,
    /// What views have taken so far, each time that they were read.
    view_bytes: usize,
    /// Expressions copied so far for operands that are needed twice.
    copied: usize,
    /// What was noted of a query that is to be stored, if it is one.
    noting: Option<star::Noted>,
    /// No positions while text other than the statement's is bound.
    positions: bool,
    /// What the statement sees of the routine whose body it is in.
    scope: Option<Arc<Scope>>,
    /// Whether `$1` may be a parameter of the statement's, where it is none of a routine.
    takes_parameters: bool,
    /// Functions of users that are called, each once; also those that are being bound.
    routines: Vec<Arc<RoutineBody>>,
    /// How many of them are being bound, one in another.
    routine_depth: usize,
    /// Oids of the tables that volatile ones read.
    volatile_reads: Vec<u32>,
    /// The statement asks by ids which transactions its snapshot shows.
    tells_ids: bool,
    /// It asks what became of a request of a cluster.
    asks_outcome: bool,
    /// It reads tables whose rows are computed, mostly from the catalog.
    reads_catalog: bool,
    /// Work since it was asked whether to stop.
    unasked: Unasked,
}

/// One query level while it is bound.
#[derive(Default)]
pub(crate) struct Level {
    pub(crate) select: Select,
    pub(crate) namespace: Namespace,
    pub(crate) aggregates: Vec<AggregateCall>,
    pub(crate) clause: Clause,
    pub(crate) set_returning: Vec<SetReturning>,
    /// Rows are grouped by several sets of keys: a key is NULL in some groups, whatever it was
    /// computed from.
    pub(crate) has_grouping_sets: bool,
    /// Number of calls with OVER.
    pub(crate) window_results: usize,
    /// Names of all tables bound so far, those out of sight too, for messages.
    pub(crate) mentioned: Vec<String>,
    /// The views that it reads, each with its relations.
    pub(crate) through_views: Vec<need::ThroughView>,
    /// A SELECT is being merged into it, which may turn out not to be simple.
    is_merging: bool,
}

/// Where in a statement an expression stands: what is allowed in it, and how messages name the
/// place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clause {
    /// The select list (or RETURNING).
    #[default]
    Targets,
    /// WHERE.
    Where,
    /// JOIN ... ON.
    JoinOn,
    /// A function in FROM.
    FromFunction,
    /// GROUP BY.
    GroupBy,
    /// HAVING.
    Having,
    /// ORDER BY.
    OrderBy,
    /// Within an aggregate's arguments.
    Aggregate,
    /// FILTER.
    Filter,
    /// PARTITION BY and ORDER BY of a window.
    WindowDefinition,
    /// VALUES.
    Values,
    /// SET of UPDATE.
    Update,
    /// CHECK.
    Check,
    /// DEFAULT.
    Default,
    /// Anything else with neither aggregates nor sets.
    Other(&'static str),
}

impl Clause {
    /// An index's expression.
    pub(crate) const INDEX_EXPRESSION: Clause = Clause::Other("index expressions");
    /// An index's predicate.
    pub(crate) const INDEX_PREDICATE: Clause = Clause::Other("index predicates");
    /// What stands in FROM, and may refer to what stands before it.
    pub(crate) const FROM: Clause = Clause::Other("FROM clause of their own query level");
    /// What a generated column is.
    pub(crate) const GENERATED_COLUMN: Clause = Clause::Other("column generation expressions");

    /// Its name in messages.
    fn name(self) -> &'static str {
        match self {
            Clause::Targets => "SELECT",
            Clause::Where => "WHERE",
            Clause::JoinOn => "JOIN conditions",
            Clause::FromFunction => "functions in FROM",
            Clause::GroupBy => "GROUP BY",
            Clause::Having => "HAVING",
            Clause::OrderBy => "ORDER BY",
            Clause::Aggregate => "aggregate function calls",
            Clause::Filter => "FILTER",
            Clause::WindowDefinition => "window definitions",
            Clause::Values => "VALUES",
            Clause::Update => "UPDATE",
            Clause::Check => "check constraints",
            Clause::Default => "DEFAULT expressions",
            Clause::Other(name) => name,
        }
    }
}

impl<'a> Binder<'a> {
    /// A binder for one statement with these declared parameter types (none: to be inferred).
    pub fn new(context: &'a BindContext<'a>, parameters: &[Option<Type>]) -> Binder<'a> {
        Binder {
            context,
            search_path: context.search_path.to_vec(),
            parameters: parameters.to_vec(),
            levels: vec![],
            barrier: 0,
            ctes: vec![],
            around: vec![],
            cte_count: 0,
            parts: parts::Parts::default(),
            tables: vec![],
            needs: vec![],
            acting: need::Acting::default(),
            views: vec![],
            user_types: vec![],
            natural_columns: vec![],
            domains: vec![],
            view_depth: 0,
            text: 0,
            tried: HashSet::new(),
            changed_view: None,
            view_bytes: 0,
            copied: 0,
            noting: None,
            positions: true,
            scope: None,
            takes_parameters: true,
            routines: vec![],
            routine_depth: 0,
            volatile_reads: vec![],
            tells_ids: false,
            asks_outcome: false,
            reads_catalog: false,
            unasked: Unasked::default(),
        }
    }

    /// A binder for what is kept, or computed before there are parameters: none may stand in it.
    pub(crate) fn without_parameters(context: &'a BindContext<'a>) -> Binder<'a> {
        Binder { takes_parameters: false, ..Binder::new(context, &[]) }
    }

    /// Notes that what stands here is not what it was first bound as.
    fn note_tried(&mut self, span: Span) {
        // What the server has written itself stands nowhere.
        if span.start.line > 0 {
            self.tried.insert((self.text, span.start.line, span.start.column));
        }
    }

    fn is_tried(&self, span: Span) -> bool {
        self.tried.contains(&(self.text, span.start.line, span.start.column))
    }

    /// The types of all parameters, once everything is bound. 42P18 if one is still open.
    pub fn parameter_types(&self) -> Result<Vec<Type>> {
        let open = |n| {
            let message = format!("could not determine data type of parameter ${}", n + 1);
            SqlError::new(sqlstate::INDETERMINATE_DATATYPE, message)
        };
        self.parameters.iter().enumerate().map(|(n, ty)| ty.ok_or_else(|| open(n))).collect()
    }

    /// The stored tables the statement reads, those in subqueries and views too, each once.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Oids of the views the statement reads, through other views too.
    pub fn views(&self) -> &[u32] {
        &self.views
    }

    /// Oids of the types of users that the statement names.
    pub fn user_types(&self) -> &[u32] {
        &self.user_types
    }

    /// Names of the columns that each NATURAL JOIN compares, one after the other.
    pub(crate) fn natural_columns(&self) -> &[String] {
        &self.natural_columns
    }

    /// The type a syntax tree names.
    pub(crate) fn named_type(&mut self, data_type: &DataType) -> Result<Type> {
        self.need_schema_of_type(data_type);
        let ty = match self.under_own_path(data_type) {
            Some(found) => resolve_type(&found, self.context.eval.format)?,
            None => resolve_type(data_type, self.context.eval.format)?,
        };
        if let Some(oid) = ty.user_type() {
            self.user_types.push(oid);
            self.note_needed(&[oid]);
        }
        Ok(ty)
    }

    /// Puts the names of users' types into a message that names these types, in this order. It was
    /// made where no catalog is, and says what they are made of.
    pub(crate) fn name_types(&self, mut error: SqlError, types: &[Type]) -> SqlError {
        let mut from = 0;
        for ty in types {
            let said = ty.id.sql_name();
            let Some(at) = error.message[from..].find(said) else { continue };
            let at = from + at;
            from = at + said.len();
            if ty.user_type().is_some() {
                let name = ty.format_with(self.context.eval.format);
                error.message.replace_range(at..from, &name);
                from = at + name.len();
            }
        }
        error
    }

    /// Number of common table expressions so far.
    pub fn cte_count(&self) -> usize {
        self.cte_count
    }

    /// 0A000: names what is not supported.
    pub(crate) fn lacks(&self, feature: impl Into<String>) -> SqlError {
        SqlError::unsupported(feature.into())
    }

    /// The error with the position of a syntax tree node.
    pub(crate) fn at(&self, error: SqlError, span: Span) -> SqlError {
        if !self.positions {
            return error;
        }
        match character_position(self.context.source, span.start) {
            Some(position) => error.at(position),
            None => error,
        }
    }

    pub(crate) fn note_table(&mut self, table: &Arc<Table>) {
        if !self.tables.iter().any(|known| Arc::ptr_eq(known, table)) {
            self.tables.push(table.clone());
        }
    }

    /// The innermost level.
    pub(crate) fn level(&mut self) -> Result<&mut Level> {
        self.levels.last_mut().ok_or_else(|| SqlError::internal("no query level is open"))
    }

    /// Opens an empty level, for expressions over no row.
    pub fn open_level(&mut self) {
        self.push_level();
    }

    pub(crate) fn push_level(&mut self) {
        self.levels.push(Level::default());
    }

    pub(crate) fn pop_level(&mut self) -> Result<Level> {
        self.levels.pop().ok_or_else(|| SqlError::internal("no query level is open"))
    }

    /// Runs `bind` with the open level's clause set: what is allowed in expressions and how
    /// messages name the place.
    pub fn in_clause<T>(&mut self, clause: Clause, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = std::mem::replace(&mut self.level()?.clause, clause);
        let result = bind(self);
        self.level()?.clause = before;
        result
    }

    /// The clause being bound; `Targets` outside any level.
    pub(crate) fn clause(&self) -> Clause {
        self.levels.last().map_or(Clause::Targets, |level| level.clause)
    }

    /// Type of a parameter, from 0; none if it is still open.
    pub(crate) fn parameter(&mut self, number: usize) -> Option<Type> {
        if self.parameters.len() <= number {
            self.parameters.resize(number + 1, None);
        }
        self.parameters[number]
    }

    /// Settles a parameter's type. 42P08 if it has another one.
    pub(crate) fn settle_parameter(&mut self, number: usize, ty: Type) -> Result<()> {
        // A parameter has no modifier: it is applied to its value where it is needed.
        let ty = ty.parameter();
        match self.parameter(number) {
            None => self.parameters[number] = Some(ty),
            Some(known) if known == ty => {}
            Some(known) => {
                return Err(SqlError::new(
                    sqlstate::AMBIGUOUS_PARAMETER,
                    format!("inconsistent types deduced for parameter ${}", number + 1),
                )
                .with_detail(format!("{} versus {}", known.id.sql_name(), ty.id.sql_name())));
            }
        }
        Ok(())
    }

    /// The type of results that nothing settled: text.
    pub(crate) const UNSETTLED: Type = Type::new(TypeId::Text);
}

impl Level {
    /// The place in the frame of a relation's column.
    pub(crate) fn slot(&mut self, relation: usize, column: usize) -> usize {
        let select = &mut self.select;
        if let Some(slot) = select.relations[relation].slots[column] {
            return slot;
        }
        let slot = select.slots.len();
        let ty = select.relations[relation].types[column];
        select.slots.push(Slot { relation, part: SlotPart::Column(column), ty });
        select.relations[relation].slots[column] = Some(slot);
        slot
    }

    /// The place in the frame of a relation's row key.
    pub(crate) fn key_slot(&mut self, relation: usize) -> usize {
        let select = &mut self.select;
        if let Some(slot) = select.relations[relation].key_slot {
            return slot;
        }
        let slot = select.slots.len();
        select.slots.push(Slot { relation, part: SlotPart::Key, ty: TypeId::Bytea.into() });
        select.relations[relation].key_slot = Some(slot);
        slot
    }
}
