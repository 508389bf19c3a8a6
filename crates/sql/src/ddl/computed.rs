//! What indexes compute of rows, expressions and predicates, and what generated columns are: from a
//! statement's words to what the catalog keeps.
//!
//! What is kept means the same to every session and for all time, since entries are found again by
//! computing them again:
//!
//! - only what is immutable may be in it (42P17), and no function of a user's;
//! - a literal that says another thing in another session, such as `'today'` or a time without a
//!   zone, is replaced by the value it has for the one that makes the index;
//! - types that are not built in are named with their schema, and columns without their table,
//!   whose name may change.

use sqlparser::ast::{self, Expr as Syntax, Value};

use super::names::fold;
use crate::bind::{BindContext, Binder, name_without_schema, nameable, put_schema, resolve_type};
use crate::catalog::{Computed, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::parse::parse_expression;
use crate::parse::walk::{change_expressions, change_types};
use crate::session::work::Work;
use crate::types::{Datum, FormatContext, Type, TypeId};

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
    pub(crate) fn new_expression(&self, table: &Table, syntax: &Syntax, place: usize) -> Result<Computed> {
        let name = nameable(syntax).unwrap_or_else(|| "expr".to_owned());
        Ok(Computed { name, ..self.new_computed(table, syntax, place, Use::Expression)? })
    }

    /// The predicate of a new index.
    pub(crate) fn new_predicate(&self, table: &Table, syntax: &Syntax, place: usize) -> Result<Computed> {
        self.new_computed(table, syntax, place, Use::Predicate)
    }

    /// Makes a column a generated one. 42P17 if it is made from one, or from more than the row.
    pub(crate) fn generate_column(&self, table: &mut Table, place: usize, syntax: &Syntax) -> Result<()> {
        let computed = self.new_computed(table, syntax, place, Use::Generated(place))?;
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

    fn new_computed(&self, table: &Table, syntax: &Syntax, place: usize, what: Use) -> Result<Computed> {
        let meant = self.bind(|binder| what.bind(binder, table, syntax))?;
        let mut parameter = None;
        meant.expr.visit(&mut |expr| {
            if let Expr::Parameter(number) = expr {
                parameter.get_or_insert(number + 1);
            }
        });
        if let Some(number) = parameter {
            let message = format!("there is no parameter ${number}");
            return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, message));
        }
        let mut fixed = syntax.clone();
        self.fix_literals(&mut fixed, &meant.expr, what)?;
        self.qualify_types(&mut fixed)?;
        name_columns_alone(&mut fixed);
        let text = fixed.to_string();
        let typed = self.bind_alike(table, &parse_expression(&text)?, what)?;
        let mut columns = Vec::new();
        typed.expr.for_each_slot(&mut |column| {
            if !columns.contains(&column) {
                columns.push(column);
            }
        });
        Ok(Computed { place, name: String::new(), text, ty: typed.ty, columns })
    }

    /// Binds as everybody will. 42P17 if the value depends on more than the row.
    fn bind_alike(&self, table: &Table, syntax: &Syntax, what: Use) -> Result<Typed> {
        let typed = self.bind(|binder| {
            let context = BindContext { search_path: &[], ..*binder.context };
            what.bind(&mut Binder::new(&context, &[]), table, syntax)
        })?;
        if !typed.expr.is_immutable() {
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
        let mut found: Vec<(String, &Expr, Type)> = Vec::new();
        meant.visit(&mut |expr| {
            if let Expr::Cast(cast) = expr
                && let (Expr::Constant(Datum::Text(text)), TypeId::Unknown) = (&cast.0, cast.1.from.id)
            {
                found.push((text.as_str().to_owned(), expr, cast.1.to));
            }
        });
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
