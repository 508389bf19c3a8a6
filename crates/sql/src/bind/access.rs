//! Parts of values: elements and slices of arrays, fields of rows.

use sqlparser::ast::{AccessExpr, Expr as Syntax, Subscript};

use super::Binder;
use super::scope::row_if_there;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, FunctionCall, Typed, fold};
use crate::function::{jsonb_put, jsonb_subscript, name_element, put_element, put_slice};
use crate::parse::ALL_FIELDS;
use crate::pg_catalog::{EXPANDED_ARRAY, EXPLODED, EXPLODED_ROW};
use crate::types::cast::CastContext;
use crate::types::{Datum, MAX_DIMENSIONS, Shape, Type, TypeId};

/// `(record).*`.
pub(super) fn is_all_fields(chain: &[AccessExpr]) -> bool {
    matches!(chain, [AccessExpr::Dot(Syntax::Identifier(field))] if field.value == ALL_FIELDS)
}

impl Binder<'_> {
    /// `array[i]`, `array[i:j]`.
    pub(super) fn access(&mut self, root: &Syntax, chain: &[AccessExpr]) -> Result<Typed> {
        let mut columns = vec![];
        let mut rest = chain;
        // `t.a[1]` comes as an access to a field.
        if let Syntax::Identifier(table) = root {
            columns.push(table.clone());
            while let [AccessExpr::Dot(Syntax::Identifier(field)), after @ ..] = rest {
                columns.push(field.clone());
                rest = after;
            }
        }
        let typed = if columns.is_empty() { self.settled_expression(root)? } else { self.column(&columns)? };
        if rest.is_empty() {
            return Ok(typed);
        }
        if is_all_fields(rest) {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "row expansion via \"*\" is not supported here",
            ));
        }
        if typed.ty == EXPANDED_ARRAY
            && let [AccessExpr::Dot(Syntax::Identifier(field))] = rest
        {
            return expanded_array_field(typed, &super::object_name(field));
        }
        if let (Some(shape), [AccessExpr::Dot(Syntax::Identifier(field))]) = (self.fields(&typed)?, rest) {
            let name = super::object_name(field);
            let place = shape.iter().position(|(known, _)| *known == name);
            let place = place.ok_or_else(|| no_field(&name))?;
            return Ok(field_of(&typed.expr, place, shape[place].1));
        }
        if let (TypeId::Name, [AccessExpr::Subscript(Subscript::Index { index })]) = (typed.ty.id, rest) {
            let arguments = vec![typed.expr, self.array_subscript(index)?];
            let call = Expr::Function(Box::new(FunctionCall { function: name_element(), arguments }));
            return Ok(Typed::new(fold(call, self.context), TypeId::InternalChar));
        }
        if typed.ty.id == TypeId::Jsonb && matches!(rest[0], AccessExpr::Subscript(_)) {
            let mut arguments = vec![typed.expr];
            let types = self.jsonb_subscripts(rest, &mut arguments)?;
            let call = FunctionCall { function: jsonb_subscript(&types), arguments };
            return Ok(Typed::new(fold(Expr::Function(Box::new(call)), self.context), TypeId::Jsonb));
        }
        let Some(element) = typed.ty.element() else {
            return Err(match rest[0] {
                AccessExpr::Dot(_) => self.lacks("selecting a field of a composite value"),
                AccessExpr::Subscript(_) => cannot_subscript(typed.ty),
            });
        };
        check_dimensions(rest)?;
        if is_slice(rest) {
            let bounds = rest.iter().map(|access| self.slice_bounds(access)).collect::<Result<_>>()?;
            let expr = Expr::Slice(Box::new((typed.expr, bounds)));
            return Ok(Typed::new(fold(expr, self.context), typed.ty));
        }
        let mut subscripts = vec![];
        for access in rest {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                return Err(self.lacks("this kind of subscript"));
            };
            subscripts.push(self.array_subscript(index)?);
        }
        let expr = Expr::Subscript(Box::new((typed.expr, subscripts)));
        Ok(Typed::new(fold(expr, self.context), element))
    }

    /// Adds the subscripts of a document to the arguments; answers their types. 42804.
    fn jsonb_subscripts(&mut self, chain: &[AccessExpr], arguments: &mut Vec<Expr>) -> Result<Vec<Type>> {
        let mut types = vec![];
        for access in chain {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                let message = "jsonb subscript does not support slices";
                return Err(match access {
                    AccessExpr::Subscript(_) => SqlError::new(sqlstate::DATATYPE_MISMATCH, message),
                    _ => self.lacks("selecting a field of a composite value"),
                });
            };
            let index = self.settled_expression(index)?;
            let from = index.ty.id;
            let target =
                if matches!(from, TypeId::Int2 | TypeId::Int4) { TypeId::Int4 } else { TypeId::Text };
            match self.coerce(index, target.into(), CastContext::Implicit)? {
                Some(index) => arguments.push(index.expr),
                None => {
                    let message = format!("subscript type {} is not supported", from.sql_name());
                    let error = SqlError::new(sqlstate::DATATYPE_MISMATCH, message);
                    return Err(
                        error.with_hint("jsonb subscript must be coercible to either integer or text.")
                    );
                }
            }
            types.push(target.into());
        }
        Ok(types)
    }

    /// A column's array with another element or slice, or its document with another part: the
    /// subscripts and the new value.
    pub(crate) fn put_element(
        &mut self,
        array: Typed,
        column: &str,
        (chain, value): (&[AccessExpr], &Syntax),
    ) -> Result<Expr> {
        let value = self.expression(value)?;
        self.put_value(array, column, chain, value)
    }

    /// The same of a value that is bound already.
    pub(crate) fn put_value(
        &mut self,
        array: Typed,
        column: &str,
        chain: &[AccessExpr],
        value: Typed,
    ) -> Result<Expr> {
        if array.ty.id == TypeId::Jsonb {
            let mut arguments = vec![array.expr, self.assign_element(value, array.ty, column)?];
            let types = self.jsonb_subscripts(chain, &mut arguments)?;
            let call = FunctionCall { function: jsonb_put(&types), arguments };
            return Ok(Expr::Function(Box::new(call)));
        }
        let element = array.ty.element().ok_or_else(|| cannot_subscript(array.ty))?;
        check_dimensions(chain)?;
        if is_slice(chain) {
            return self.put_slice(array, column, chain, value);
        }
        let mut subscripts = vec![];
        for access in chain {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                return Err(self.lacks("this kind of subscript"));
            };
            subscripts.push(self.array_subscript(index)?);
        }
        let mut arguments = vec![array.expr, self.assign_element(value, element, column)?];
        arguments.append(&mut subscripts);
        let function = put_element(array.ty, element, chain.len());
        Ok(Expr::Function(Box::new(FunctionCall { function, arguments })))
    }

    /// A column's array with the elements of another one in a slice.
    fn put_slice(&mut self, array: Typed, column: &str, chain: &[AccessExpr], value: Typed) -> Result<Expr> {
        let mut given = 0;
        let mut bounds = vec![];
        for access in chain {
            for bound in self.slice_bounds(access)? {
                if bound.is_some() {
                    given |= 1 << bounds.len();
                }
                bounds.push(bound.unwrap_or(Expr::Constant(Datum::Null)));
            }
        }
        // What a domain over the array asks is asked of the whole.
        let value = self.assign_element(value, array.ty.base(), column)?;
        let mut arguments = vec![array.expr, value, Expr::Constant(Datum::Int4(given))];
        arguments.append(&mut bounds);
        let function = put_slice(array.ty, chain.len());
        Ok(Expr::Function(Box::new(FunctionCall { function, arguments })))
    }

    fn assign_element(&mut self, value: Typed, element: Type, column: &str) -> Result<Expr> {
        let from = value.ty;
        let converted = self.coerce(value, element, CastContext::Assignment)?;
        converted.map(|typed| typed.expr).ok_or_else(|| {
            SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!(
                    "subscripted assignment to \"{column}\" requires type {} but expression is of type {}",
                    element.id.sql_name(),
                    from.id.sql_name()
                ),
            )
            .with_hint("You will need to rewrite or cast the expression.")
        })
    }

    /// Names and types of the fields of a record, if they are known.
    fn fields(&mut self, record: &Typed) -> Result<Option<Shape>> {
        match record.ty == EXPLODED_ROW {
            true => Ok(Some(EXPLODED.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect())),
            false => self.shape(&record.expr),
        }
    }

    fn shape(&mut self, record: &Expr) -> Result<Option<Shape>> {
        Ok(match record {
            Expr::Row(_, shape) => Some(shape.clone()),
            // A row that an outer join may not have.
            Expr::Case(case) => match (case.branches.as_slice(), &case.otherwise) {
                ([(_, row)], Expr::Constant(Datum::Null)) => self.shape(row)?,
                _ => None,
            },
            Expr::Routine(call) => call.body()?.shape.clone(),
            Expr::SetResult(place) => self.level()?.set_returning[*place].shape.clone(),
            _ => None,
        })
    }

    /// `(record).*`: its fields with their names.
    pub(super) fn record_star(&mut self, record: &Syntax) -> Result<Vec<(String, Typed)>> {
        let record = self.settled_expression(record)?;
        let Some(shape) = self.fields(&record)? else {
            return Err(match record.ty.id {
                TypeId::Record => self.lacks("\".*\" of a composite value"),
                id => SqlError::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("type {} is not composite", id.sql_name()),
                ),
            });
        };
        let fields = shape.iter().enumerate();
        Ok(fields.map(|(place, (name, ty))| (name.clone(), field_of(&record.expr, place, *ty))).collect())
    }

    /// The bounds of one dimension. Beside a slice, a single subscript is the upper bound of one
    /// from 1.
    fn slice_bounds(&mut self, access: &AccessExpr) -> Result<[Option<Expr>; 2]> {
        match access {
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                Ok([self.slice_bound(lower_bound.as_ref())?, self.slice_bound(upper_bound.as_ref())?])
            }
            AccessExpr::Subscript(Subscript::Index { index }) => {
                Ok([Some(Expr::Constant(Datum::Int4(1))), self.slice_bound(Some(index))?])
            }
            _ => Err(self.lacks("this kind of subscript")),
        }
    }

    fn slice_bound(&mut self, bound: Option<&Syntax>) -> Result<Option<Expr>> {
        let Some(syntax) = bound else { return Ok(None) };
        self.array_subscript(syntax).map(Some)
    }

    /// A subscript of an array, converted to an integer as a value that is stored is: larger
    /// integers and numbers with a fraction will do. 42804.
    fn array_subscript(&mut self, syntax: &Syntax) -> Result<Expr> {
        let typed = self.expression(syntax)?;
        let converted = self.coerce(typed, TypeId::Int4.into(), CastContext::Assignment)?;
        converted.map(|typed| typed.expr).ok_or_else(|| {
            SqlError::new(sqlstate::DATATYPE_MISMATCH, "array subscript must have type integer")
        })
    }
}

/// Whether a slice is meant: then a single subscript beside the bounds is one, too.
fn is_slice(chain: &[AccessExpr]) -> bool {
    chain.iter().any(|access| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. })))
}

/// 54000 for more subscripts than an array can have dimensions.
fn check_dimensions(chain: &[AccessExpr]) -> Result<()> {
    let count = chain.len();
    if count <= MAX_DIMENSIONS {
        return Ok(());
    }
    let message =
        format!("number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})");
    Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message))
}

fn cannot_subscript(ty: Type) -> SqlError {
    let name = ty.id.sql_name();
    let message = format!("cannot subscript type {name} because it does not support subscripting");
    SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
}

fn no_field(name: &str) -> SqlError {
    SqlError::new(
        sqlstate::UNDEFINED_COLUMN,
        format!("could not identify column \"{name}\" in record data type"),
    )
}

/// A field of a record. What was a literal without a type is a text.
fn field_of(record: &Expr, place: usize, ty: Type) -> Typed {
    let expr = match record {
        Expr::Row(items, _) => items[place].clone(),
        record => match row_if_there(record) {
            Some(items) => items[place].clone(),
            None => {
                let number = Expr::Constant(Datum::Int4(place as i32 + 1));
                Expr::Subscript(Box::new((record.clone(), vec![number])))
            }
        },
    };
    Typed::new(expr, if ty.id == TypeId::Unknown { Type::new(TypeId::Text) } else { ty })
}

/// A field of a record that `_pg_expandarray` gives.
fn expanded_array_field(record: Typed, field: &str) -> Result<Typed> {
    match field {
        "x" => Ok(field_of(&record.expr, 0, TypeId::Int2.into())),
        "n" => Ok(field_of(&record.expr, 1, TypeId::Int4.into())),
        _ => Err(no_field(field)),
    }
}
