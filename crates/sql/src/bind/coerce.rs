//! Conversions that statements do not spell out: untyped literals, parameters, common types.

use super::Binder;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{DomainValue, Expr, Typed, fold};
use crate::identifier::split_qualified;
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, FormatContext, IntervalStyle, Type, TypeId};

/// The type that values of these types can all be converted to implicitly, by PostgreSQL's rules
/// for UNION, CASE, VALUES and so on. `Unknown` if all are. On failure the two types that cannot be
/// matched.
pub fn common_type(types: &[Type]) -> Result<Type, (Type, Type)> {
    let mut chosen = types.first().copied().unwrap_or(Type::new(TypeId::Unknown));
    for &ty in types.iter().skip(1) {
        if ty.id == chosen.id && ty.is_of_enum() && ty.modifier != chosen.modifier {
            return Err((chosen, ty));
        }
        if ty.id == TypeId::Unknown || ty.id == chosen.id {
            continue;
        }
        if chosen.id == TypeId::Unknown {
            chosen = ty;
        } else if chosen.id.category() != ty.id.category() {
            return Err((chosen, ty));
        } else if !chosen.id.is_preferred() && is_implicit(chosen, ty) && !is_implicit(ty, chosen) {
            chosen = ty;
        }
    }
    // The modifier and the domain survive only if all agree on them.
    let agree = types.iter().all(|ty| *ty == chosen);
    Ok(if agree { chosen } else { chosen.plain() })
}

fn is_implicit(from: Type, to: Type) -> bool {
    cast::find(Type::new(from.id), Type::new(to.id), CastContext::Implicit).is_some()
}

/// Whether reading this literal depends on the session: its time zone, the current date, the
/// catalog.
fn depends_on_session(ty: TypeId, text: &str) -> bool {
    let text = text.trim();
    let is_plain = |allowed: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit() || allowed.as_bytes().contains(&byte))
            && text.bytes().take_while(u8::is_ascii_digit).count() == 4
    };
    match ty {
        TypeId::Date | TypeId::Timestamp => !is_plain("-: .T") && !text.ends_with("infinity"),
        TypeId::Timestamptz => {
            let has_zone = text.ends_with('Z')
                || text.rfind(':').is_some_and(|colon| text[colon..].contains(['+', '-']))
                || text.len() > 11 && text[11..].contains(['+', '-']);
            !(has_zone && is_plain("-: .T+Z"))
        }
        TypeId::Time => !text.bytes().all(|byte| byte.is_ascii_digit() || b":.".contains(&byte)),
        ty if ty.is_oid() => ty != TypeId::Oid,
        ty => ty.element().is_some_and(|element| {
            element.category() == crate::types::Category::DateTime || element.is_oid()
        }),
    }
}

/// Whether a literal that was read as this value is another one in another `IntervalStyle`, as
/// `-1 2:00:00` is in the standard's.
fn depends_on_style(
    value: &Datum,
    text: &str,
    target: Type,
    how: CastContext,
    format: &FormatContext,
) -> bool {
    let base = target.id.element().unwrap_or(target.id);
    if base != TypeId::Interval || !text.contains('-') {
        return false;
    }
    let interval_style = match format.interval_style == IntervalStyle::SqlStandard {
        true => IntervalStyle::Postgres,
        false => IntervalStyle::SqlStandard,
    };
    let other = FormatContext { interval_style, ..format.clone() };
    !read_literal(text, target, how, &other).is_ok_and(|other| other == *value)
}

/// Reads a literal's text as a value of a type.
pub(crate) fn read_literal(
    text: &str,
    target: Type,
    how: CastContext,
    format: &FormatContext,
) -> Result<Datum> {
    // What a bare number means depends on the interval's fields.
    let read_as = if target.id == TypeId::Interval { target } else { target.plain() };
    let value = Datum::from_text(read_as, text, format)?;
    if target.modifier == -1 {
        return Ok(value);
    }
    cast::apply_modifier(value, target, how == CastContext::Explicit)
}

impl Binder<'_> {
    /// Converts to `target` if there is a conversion in this context. Untyped literals are read as
    /// the target type (its errors are the literal's), open parameters become of the target type.
    pub(crate) fn coerce(&mut self, typed: Typed, target: Type, how: CastContext) -> Result<Option<Typed>> {
        if typed.ty == target {
            return Ok(Some(typed));
        }
        let Some(typed) = self.coerce_unchecked(typed, target, how)? else { return Ok(None) };
        Ok(Some(match self.domain_check(target)? {
            Some(check) => {
                let value = DomainValue { operand: typed.expr, check };
                Typed::new(Expr::Domain(Box::new(value)), target)
            }
            None => typed,
        }))
    }

    /// The same for a value that is tested elsewhere, if the target is a domain.
    pub(crate) fn coerce_unchecked(
        &mut self,
        typed: Typed,
        target: Type,
        how: CastContext,
    ) -> Result<Option<Typed>> {
        if typed.ty == target {
            return Ok(Some(typed));
        }
        if typed.ty.id == TypeId::Unknown {
            return self.coerce_unknown(typed, target, how).map(Some);
        }
        // The polymorphic targets take anything as it is.
        if target.id.is_pseudo() {
            return Ok(Some(typed));
        }
        // A domain's values are those of the type under it.
        let (from, to) = (typed.ty.bare(), target.bare());
        let Some(found) = cast::find(from, to, how) else { return Ok(None) };
        if found.is_noop() || (to.modifier == -1 && is_same_value(from.id, to.id)) {
            return Ok(Some(Typed::new(typed.expr, target)));
        }
        let expr = fold(Expr::Cast(Box::new((typed.expr, found))), self.context);
        Ok(Some(Typed::new(expr, target)))
    }

    fn coerce_unknown(&mut self, typed: Typed, target: Type, how: CastContext) -> Result<Typed> {
        let is_polymorphic =
            target.id.is_pseudo() && !matches!(target.id, TypeId::Record | TypeId::RecordArray);
        if target.id == TypeId::Unknown || is_polymorphic {
            return Ok(typed);
        }
        match typed.expr {
            Expr::Constant(Datum::Null) => Ok(Typed::new(Expr::NULL, target)),
            Expr::Constant(Datum::Text(ref text)) => {
                if target.id == TypeId::Regclass
                    && let Some(meant) = self.regclass_in_view(text.as_str())
                {
                    return Ok(Typed::new(Expr::Constant(meant), target));
                }
                let format = self.context.eval.format;
                let value = read_literal(text.as_str(), target, how, format)?;
                if target.id == TypeId::Regclass {
                    self.note_named(&value);
                }
                let is_of_session = depends_on_session(target.id, text.as_str())
                    || depends_on_style(&value, text.as_str(), target, how, format);
                let noted = self.noted().map(|_| text.as_str().to_owned());
                let value = if is_of_session {
                    let found = cast::find(TypeId::Unknown.into(), target, CastContext::Explicit)
                        .ok_or_else(|| cast::cannot_cast(typed.ty, target))?;
                    Expr::Cast(Box::new((typed.expr, found)))
                } else {
                    Expr::Constant(value)
                };
                let value = Typed::new(value, target);
                if let (Some(text), Some(noted)) = (noted, self.noted()) {
                    noted.literals.push((text, value.clone()));
                }
                Ok(value)
            }
            Expr::Parameter(number) => {
                self.settle_parameter(number, target)?;
                let parameter = Typed::new(Expr::Parameter(number), target.plain());
                if target == target.plain() {
                    return Ok(parameter);
                }
                let converted = self.coerce_unchecked(parameter, target, how)?;
                converted.ok_or_else(|| cast::cannot_cast(Type::new(target.id), target))
            }
            // Something else that nothing gave a type: text.
            expr => {
                let text = Typed::new(expr, Self::UNSETTLED);
                let found = cast::find(text.ty, target, CastContext::Explicit)
                    .ok_or_else(|| cast::cannot_cast(text.ty, target))?;
                if found.is_noop() {
                    return Ok(Typed::new(text.expr, target));
                }
                Ok(Typed::new(Expr::Cast(Box::new((text.expr, found))), target))
            }
        }
    }

    /// The relation that a literal of the type `regclass` names in a view's text: the one that it
    /// named when the view was made, whatever the path of who reads it.
    fn regclass_in_view(&self, text: &str) -> Option<Datum> {
        self.view_of_text()?;
        if text.starts_with(|sign: char| sign.is_ascii_digit()) {
            return None;
        }
        let parts = split_qualified(text).ok()?;
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return None,
        };
        self.find_relation(schema, name).map(|relation| Datum::Oid(relation.oid()))
    }

    fn cannot_cast(&self, from: Type, to: Type) -> SqlError {
        self.name_types(cast::cannot_cast(from, to), &[from, to])
    }

    /// Converts implicitly; 42846 if that cannot be.
    pub fn convert(&mut self, typed: Typed, target: Type) -> Result<Typed> {
        let from = typed.ty;
        self.coerce(typed, target, CastContext::Implicit)?.ok_or_else(|| self.cannot_cast(from, target))
    }

    /// CAST and `::`.
    pub fn cast(&mut self, typed: Typed, target: Type) -> Result<Typed> {
        let from = typed.ty;
        self.coerce(typed, target, CastContext::Explicit)?.ok_or_else(|| self.cannot_cast(from, target))
    }

    /// Converts a value that is to be stored in a column. 42804 if that cannot be. What a domain
    /// asks of it is tested with the row.
    pub fn assign(&mut self, typed: Typed, target: Type, column: &str) -> Result<Typed> {
        let from = typed.ty;
        self.coerce_unchecked(typed, target, CastContext::Assignment)?.ok_or_else(|| {
            let error = SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!(
                    "column \"{column}\" is of type {} but expression is of type {}",
                    target.id.sql_name(),
                    from.id.sql_name()
                ),
            );
            let error = self.name_types(error, &[target, from]);
            error.with_hint("You will need to rewrite or cast the expression.")
        })
    }

    /// A condition. 42804 if it is not boolean; `what` is WHERE, AND, JOIN/ON ...
    pub fn condition(&mut self, typed: Typed, what: &str) -> Result<Expr> {
        let from = typed.ty;
        let bool_type = Type::new(TypeId::Bool);
        match self.coerce(typed, bool_type, CastContext::Implicit)? {
            Some(typed) => Ok(typed.expr),
            None => Err(SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!("argument of {what} must be type boolean, not type {}", from.id.sql_name()),
            )),
        }
    }

    /// 42804: what a column or a domain is to be by default, or a column is computed as, is not of
    /// its type.
    pub(crate) fn unlike_column(&self, name: &str, ty: Type, from: Type) -> SqlError {
        let shown = |ty: Type| match ty.user_type() {
            Some(_) => ty.format_with(self.context.eval.format),
            None => ty.id.sql_name().to_owned(),
        };
        let (ty, from) = (shown(ty), shown(from));
        let message = format!("column \"{name}\" is of type {ty} but default expression is of type {from}");
        SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
            .with_hint("You will need to rewrite or cast the expression.")
    }

    /// What nothing gave a type becomes text; an open parameter too.
    pub fn settle(&mut self, typed: Typed) -> Result<Typed> {
        if typed.ty.id == TypeId::Unknown {
            self.coerce_unknown(typed, Self::UNSETTLED, CastContext::Implicit)
        } else {
            Ok(typed)
        }
    }

    /// Converts all to their common type. 42804 if there is none; `what` is CASE, UNION, VALUES ...
    pub(crate) fn unify(&mut self, items: Vec<Typed>, what: &str) -> Result<(Vec<Expr>, Type)> {
        let types: Vec<Type> = items.iter().map(|item| item.ty).collect();
        let ty = self.common(&types, what)?;
        let items = items.into_iter().map(|item| Ok(self.convert(item, ty)?.expr)).collect::<Result<_>>()?;
        Ok((items, ty))
    }

    /// The common type of these, text if all are open. 42804 if there is none.
    pub(crate) fn common(&self, types: &[Type], what: &str) -> Result<Type> {
        match common_type(types) {
            Ok(ty) if ty.id == TypeId::Unknown => Ok(Self::UNSETTLED),
            Ok(ty) => Ok(ty),
            // Two enum types are of one category, where the conversion is said to fail.
            Err((a, b)) if a.id == b.id && a.is_of_enum() => {
                let message =
                    format!("{what} could not convert type {} to {}", b.id.sql_name(), a.id.sql_name());
                Err(self.name_types(SqlError::new(sqlstate::CANNOT_COERCE, message), &[b, a]))
            }
            Err((a, b)) => {
                let names = (a.id.sql_name(), b.id.sql_name());
                let message = format!("{what} types {} and {} cannot be matched", names.0, names.1);
                Err(self.name_types(SqlError::new(sqlstate::DATATYPE_MISMATCH, message), &[a, b]))
            }
        }
    }
}

/// Whether values of the two types are represented alike, so that a conversion without a length
/// changes nothing.
fn is_same_value(from: TypeId, to: TypeId) -> bool {
    let is_text = |ty| matches!(ty, TypeId::Text | TypeId::Varchar);
    from == to
        || (is_text(from) && is_text(to))
        || (from == TypeId::Name && to == TypeId::Text)
        || (from.is_oid() && to.is_oid())
}
