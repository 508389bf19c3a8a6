//! What indexes compute of rows, expressions and predicates, and what generated columns are: from a
//! statement's words to what the catalog keeps.
//!
//! What is kept means the same to every session and for all time, since entries are found again by
//! computing them again:
//!
//! - only what is immutable may be in it (42P17), and no function of a user's. PostgreSQL counts
//!   the text of a float and of bytea in, and keeps the one that it had for who wrote the row; here
//!   a session with other settings would not find the entry again (0A000);
//! - a literal that says another thing in another session, such as `'today'` or a time without a
//!   zone, is replaced by the value it has for the one that makes the index;
//! - types that are not built in are named with their schema, and columns without their table,
//!   whose name may change.

use std::collections::BTreeMap;

use cognate_syntax::{Node, change_expressions, change_types, for_each_expression};
use sqlparser::ast::{self, DataType, Expr as Syntax, TimezoneInfo, TypedString, Value};

use crate::bind::{BindContext, Binder, name_without_schema, nameable, put_schema, resolve_type};
use crate::catalog::{Computed, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::identifier::fold;
use crate::parse::parse_expression;
use crate::session::work::Work;
use crate::types::{Category, Datum, FormatContext, Type, TypeId};

/// What is computed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Expression,
    Predicate,
    /// The generated column at this place.
    Generated(usize),
}

impl Use {
    fn name(self) -> &'static str {
        match self {
            Use::Expression => "index expression",
            Use::Predicate => "index predicate",
            Use::Generated(_) => "column generation expression",
        }
    }

    fn bind(self, binder: &mut Binder<'_>, table: &Table, syntax: &Syntax) -> Result<Typed> {
        let table = std::sync::Arc::new(table.clone());
        match self {
            Use::Expression => binder.index_expression(&table, syntax),
            Use::Generated(place) => binder.generated_column(&table, place, syntax),
            Use::Predicate => {
                let condition = binder.index_predicate(&table, syntax)?;
                Ok(Typed::new(condition, TypeId::Bool))
            }
        }
    }
}

impl Work<'_> {
    /// An expression of a new index, with the name that its column would have alone.
    pub(crate) async fn new_expression(
        &mut self,
        table: &Table,
        syntax: &Syntax,
        place: usize,
    ) -> Result<Computed> {
        let name = nameable(syntax).unwrap_or_else(|| "expr".to_owned());
        Ok(Computed { name, ..self.new_computed(table, syntax, place, Use::Expression).await? })
    }

    /// The predicate of a new index.
    pub(crate) async fn new_predicate(
        &mut self,
        table: &Table,
        syntax: &Syntax,
        place: usize,
    ) -> Result<Computed> {
        self.new_computed(table, syntax, place, Use::Predicate).await
    }

    /// Makes a column a generated one. 42P17 if it is made from one, or from more than the row.
    pub(crate) async fn generate_column(
        &mut self,
        table: &mut Table,
        place: usize,
        syntax: &Syntax,
    ) -> Result<()> {
        let computed = self.new_computed(table, syntax, place, Use::Generated(place)).await?;
        let is_generated = |base: &&usize| **base == place || table.columns[**base].generated.is_some();
        if let Some(base) = computed.columns.iter().find(is_generated) {
            let name = &table.columns[*base].name;
            let message = format!("cannot use generated column \"{name}\" in column generation expression");
            return Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message)
                .with_detail("A generated column cannot reference another generated column."));
        }
        table.columns[place].generated = Some(Box::new(computed));
        Ok(())
    }

    /// What a generated column is, bound: in the type that it has in `table`.
    pub(crate) fn bind_generated(&self, table: &Table, place: usize) -> Result<Option<Expr>> {
        let Some(computed) = &table.columns[place].generated else { return Ok(None) };
        let syntax = parse_expression(&computed.text)?;
        self.bind_alike(table, &syntax, Use::Generated(place)).map(|typed| Some(typed.expr))
    }

    async fn new_computed(
        &mut self,
        table: &Table,
        syntax: &Syntax,
        place: usize,
        what: Use,
    ) -> Result<Computed> {
        self.hold_named(syntax).await?;
        let meant = self.bind(|binder| what.bind(binder, table, syntax))?;
        let mut fixed = syntax.clone();
        self.fix_literals(&mut fixed, &meant.expr, what)?;
        self.qualify_types(&mut fixed)?;
        name_columns_alone(&mut fixed);
        let text = fixed.to_string();
        let syntax = parse_expression(&text)?;
        let typed = self.bind_alike(table, &syntax, what)?;
        let columns = columns_of(table, &syntax, &typed.expr);
        Ok(Computed { place, name: String::new(), text, ty: typed.ty, columns })
    }

    /// Binds as everybody will. 42P17 if the value depends on more than the row, 0A000 if only the
    /// texts in it do.
    fn bind_alike(&self, table: &Table, syntax: &Syntax, what: Use) -> Result<Typed> {
        let typed = self.bind(|binder| {
            let context = BindContext { search_path: &[], ..*binder.context };
            what.bind(&mut Binder::new(&context, &[]), table, syntax)
        })?;
        if !typed.expr.is_immutable() {
            if typed.expr.is_immutable_but_for_texts() {
                let what = "the text of a float or of bytea, which settings change, in an index or a \
                            generated column";
                return Err(SqlError::unsupported(what));
            }
            let message = match what {
                Use::Generated(_) => "generation expression is not immutable".to_owned(),
                _ => format!("functions in {} must be marked IMMUTABLE", what.name()),
            };
            return Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message));
        }
        Ok(typed)
    }

    /// Puts the values that literals have for this session in their place. 0A000 if that cannot be
    /// said in the text.
    fn fix_literals(&self, syntax: &mut Syntax, meant: &Expr, what: Use) -> Result<()> {
        let found = session_literals(meant);
        for (text, expr, ty) in &found {
            let value = self.evaluate(expr, &[])?;
            let fixed = value.to_text_string(ty.plain(), &FormatContext::default());
            let times = found.iter().filter(|(other, _, of)| (other, of) == (text, ty)).count();
            let replaced = replace_literal(syntax, text, &fixed);
            if replaced != times && replaced != 0 {
                let what = format!("the literal '{text}' in two roles in an {}", what.name());
                return Err(SqlError::unsupported(what));
            }
        }
        Ok(())
    }

    /// Puts the values that dates, times and intervals have for this session in the place of such
    /// literals of a default or a constraint, as PostgreSQL keeps values and no texts: another
    /// session has another time zone or `DateStyle`, and tomorrow `'today'` is another day. A time
    /// with a zone gets its type, too, since the column may become one without.
    pub(super) fn fix_times(&self, syntax: &mut Syntax, meant: &Expr) -> Result<()> {
        self.fix_found(syntax, &session_literals(meant), true)
    }

    /// The same of literals that were found: their texts, values and types. One whose text stands
    /// there as something else, too, stays as it is.
    pub(super) fn fix_found(
        &self,
        syntax: &mut impl Node,
        found: &[(String, &Expr, Type)],
        with_types: bool,
    ) -> Result<()> {
        let mut roles: BTreeMap<&str, Role<'_>> = BTreeMap::new();
        for (text, value, ty) in found {
            let new = Role { value, ty: *ty, is_only: true, bound: 0, written: 0 };
            let role = roles.entry(text.as_str()).or_insert(new);
            role.is_only &= role.ty == *ty;
            role.bound += 1;
        }
        change_expressions(syntax, |expr| {
            if let Some(role) = literal_in(expr).and_then(|text| roles.get_mut(text.as_str())) {
                role.written += 1;
            }
        });
        let mut fixed = BTreeMap::new();
        for (text, role) in &roles {
            // A derived table may be bound twice, so more may be bound than is written.
            if role.is_of_session() && is_time(role.ty) && role.written <= role.bound {
                let value = self.evaluate(role.value, &[])?;
                let by = value.to_text_string(role.ty.plain(), &FormatContext::default());
                let has_zone = with_types && role.ty.id == TypeId::Timestamptz;
                let data_type = has_zone.then_some(DataType::Timestamp(None, TimezoneInfo::Tz));
                fixed.insert(*text, (by, data_type));
            }
        }
        change_expressions(syntax, |expr| {
            let Some(text) = literal_in(expr) else { return };
            let Some((by, data_type)) = fixed.get(text.as_str()) else { return };
            text.clone_from(by);
            if let (Syntax::Value(value), Some(data_type)) = (&*expr, data_type) {
                let (data_type, value) = (data_type.clone(), value.clone());
                *expr = Syntax::TypedString(TypedString { data_type, value, uses_odbc_syntax: false });
            }
        });
        Ok(())
    }

    /// Gives types that are not built in their schemas: a stored text is read under every path.
    pub(crate) fn qualify_types(&self, syntax: &mut Syntax) -> Result<()> {
        let mut result = Ok(());
        change_types(syntax, |named| {
            if result.is_ok() {
                result = self.qualify_type(named);
            }
        });
        result
    }

    fn qualify_type(&self, data_type: &mut ast::DataType) -> Result<()> {
        if name_without_schema(data_type).is_none() {
            return Ok(());
        }
        let ty = resolve_type(data_type, self.format)?;
        let oid = ty.user_type().or_else(|| ty.enum_named());
        let found = oid.and_then(|oid| self.catalog.user_type_by_oid(oid));
        if let (Some(found), Some(name)) = (found, name_without_schema(data_type)) {
            put_schema(name, found.schema_name());
        }
        Ok(())
    }

    /// After a column's type has changed: what indexes compute from it still can be, and of which
    /// type it is.
    pub(crate) fn recheck_computed(&self, table: &mut Table, column: usize) -> Result<()> {
        let shape = table.clone();
        for index in &mut table.indexes {
            let predicate = index.predicate.iter_mut().map(|one| (Use::Predicate, one));
            let expressions = index.expressions.iter_mut().map(|one| (Use::Expression, one));
            for (what, computed) in predicate.chain(expressions) {
                if computed.columns.contains(&column) {
                    let syntax = parse_expression(&computed.text)?;
                    computed.ty = self.bind_alike(&shape, &syntax, what)?.ty;
                }
            }
        }
        Ok(())
    }
}

/// What a literal's text stands for.
struct Role<'a> {
    value: &'a Expr,
    ty: Type,
    /// It is of no other type elsewhere.
    is_only: bool,
    /// How often it was bound.
    bound: usize,
    /// How often it is in the syntax.
    written: usize,
}

impl Role<'_> {
    /// Whether other sessions may read it as another value, and it is nothing else.
    fn is_of_session(&self) -> bool {
        self.is_only && matches!(self.value, Expr::Cast(_))
    }
}

/// Dates, times, intervals, and arrays of them: what is written of a value in ISO style every
/// session reads as this value.
fn is_time(ty: Type) -> bool {
    let base = ty.id.element().unwrap_or(ty.id);
    base == TypeId::Interval || base.category() == Category::DateTime
}

/// The text of a string literal, alone or behind its type.
fn literal_in(syntax: &mut Syntax) -> Option<&mut String> {
    let value = match syntax {
        Syntax::Value(value) => value,
        Syntax::TypedString(literal) => &mut literal.value,
        _ => return None,
    };
    match &mut value.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        _ => None,
    }
}

/// The literals that are read anew by each session, with their types.
fn session_literals(meant: &Expr) -> Vec<(String, &Expr, Type)> {
    let mut found = Vec::new();
    meant.visit(&mut |expr| {
        if let Expr::Cast(cast) = expr
            && let (Expr::Constant(Datum::Text(text)), TypeId::Unknown) = (&cast.0, cast.1.from.id)
        {
            found.push((text.as_str().to_owned(), expr, cast.1.to));
        }
    });
    found
}

/// The columns that an expression names, and those that it reads. A bound one may need no value of
/// a column that is written in it (`a IS NULL OR true`), but its text is bound again by everybody,
/// who finds the column only if it is there, and has the name that is written.
pub(super) fn columns_of(table: &Table, syntax: &Syntax, bound: &Expr) -> Vec<usize> {
    let mut columns: Vec<usize> = Vec::new();
    let mut add = |place: usize| {
        if !columns.contains(&place) {
            columns.push(place);
        }
    };
    for_each_expression(syntax, |expr| {
        let name = match expr {
            Syntax::Identifier(name) => Some(name),
            Syntax::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        if let Some(place) = name.and_then(|name| table.column_place(&fold(name))) {
            add(place);
        }
    });
    bound.for_each_slot(&mut add);
    columns
}

/// What an index computes, or a constraint asks, after a column was renamed. Constraints of earlier
/// builds may name the column with its table.
pub(super) fn rename_column(text: &str, old: &str, new: &str) -> Result<String> {
    let mut syntax = parse_expression(text)?;
    change_expressions(&mut syntax, |expr| {
        let name = match expr {
            Syntax::Identifier(name) => Some(name),
            Syntax::CompoundIdentifier(names) => names.last_mut(),
            _ => None,
        };
        if let Some(name) = name.filter(|name| fold(name) == old) {
            *name = ast::Ident::with_quote('"', new);
        }
    });
    Ok(syntax.to_string())
}

/// Names columns without their table, whose name may change.
pub(super) fn name_columns_alone(syntax: &mut Syntax) {
    change_expressions(syntax, |expr| {
        if let Syntax::CompoundIdentifier(names) = expr
            && let Some(column) = names.pop()
        {
            *expr = Syntax::Identifier(column);
        }
    });
}

/// Replaces string literals with this text; says how many there were.
fn replace_literal(syntax: &mut Syntax, text: &str, by: &str) -> usize {
    let mut replaced = 0;
    let mut replace = |value: &mut Value| match value {
        Value::SingleQuotedString(literal) | Value::EscapedStringLiteral(literal) if literal == text => {
            *value = Value::SingleQuotedString(by.to_owned());
            replaced += 1;
        }
        _ => {}
    };
    change_expressions(syntax, |expr| match expr {
        Syntax::Value(value) => replace(&mut value.value),
        Syntax::TypedString(literal) => replace(&mut literal.value.value),
        _ => {}
    });
    replaced
}
