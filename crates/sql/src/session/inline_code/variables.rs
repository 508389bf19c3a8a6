//! The variables of a block that runs, and of those around it.

use crate::error::{Result, SqlError, sqlstate};
use crate::routine::{Named, Scope};
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, FormatContext, Type, TypeId};

/// A variable.
#[derive(Debug)]
struct Variable {
    /// Its block's.
    label: Option<String>,
    name: String,
    holds: Holds,
    constant: bool,
    not_null: bool,
}

#[derive(Debug)]
enum Holds {
    Value(Type, Datum),
    /// A record: its fields, once it has any.
    Record(Option<Vec<(String, Type, Datum)>>),
}

/// Variables, the outermost first.
#[derive(Debug, Default)]
pub(super) struct Variables {
    all: Vec<Variable>,
    found: bool,
}

/// The value as one of another type: as an assignment converts it, or by its text.
pub(super) fn convert(value: Datum, from: Type, to: Type, format: &FormatContext) -> Result<Datum> {
    let found = cast::find(from, to, CastContext::Assignment)
        .or_else(|| cast::find(from, to, CastContext::Explicit))
        .ok_or_else(|| {
            SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!(
                    "a value of type {} cannot become one of type {}",
                    from.id.sql_name(),
                    to.id.sql_name()
                ),
            )
        })?;
    if found.is_noop() { Ok(value) } else { found.apply(&value, format) }
}

impl Variables {
    /// So many there are; [`Variables::truncate`] takes those away that came later.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn truncate(&mut self, count: usize) {
        self.all.truncate(count);
    }

    /// FOUND: whether the last statement had rows.
    pub(super) fn set_found(&mut self, found: bool) {
        self.found = found;
    }

    pub(super) fn declare(
        &mut self,
        label: Option<&str>,
        name: &str,
        ty: Type,
        (constant, not_null): (bool, bool),
        value: Datum,
    ) -> Result<()> {
        check_null(not_null, &value, name)?;
        let holds = Holds::Value(ty, value);
        let label = label.map(str::to_owned);
        self.all.push(Variable { label, name: name.to_owned(), holds, constant, not_null });
        Ok(())
    }

    pub(super) fn declare_record(
        &mut self,
        label: Option<&str>,
        name: &str,
        fields: Option<Vec<(String, Type)>>,
    ) {
        let fields =
            fields.map(|fields| fields.into_iter().map(|(name, ty)| (name, ty, Datum::Null)).collect());
        self.all.push(Variable {
            label: label.map(str::to_owned),
            name: name.to_owned(),
            holds: Holds::Record(fields),
            constant: false,
            not_null: false,
        });
    }

    fn place(&self, name: &str) -> Result<usize> {
        let place = self.all.iter().rposition(|variable| variable.name == name);
        place.ok_or_else(|| SqlError::syntax(format!("\"{name}\" is not a known variable")))
    }

    /// The type of a variable.
    pub(super) fn type_of(&self, name: &str) -> Result<Type> {
        match &self.all[self.place(name)?].holds {
            Holds::Value(ty, _) => Ok(*ty),
            Holds::Record(_) => Err(SqlError::unsupported(format!("the type of the record \"{name}\""))),
        }
    }

    /// Gives a variable a value of this type.
    pub(super) fn assign(
        &mut self,
        name: &str,
        value: Datum,
        from: Type,
        format: &FormatContext,
    ) -> Result<()> {
        let place = self.place(name)?;
        let variable = &mut self.all[place];
        if variable.constant {
            return Err(SqlError::new("22005", format!("variable \"{name}\" is declared CONSTANT")));
        }
        match &mut variable.holds {
            Holds::Value(ty, held) => {
                let value = convert(value, from, *ty, format)?;
                check_null(variable.not_null, &value, name)?;
                *held = value;
                Ok(())
            }
            Holds::Record(_) => Err(SqlError::unsupported(format!("an assignment to the record \"{name}\""))),
        }
    }

    /// Gives variables, or a record, the columns of a row; of no row, NULLs.
    pub(super) fn assign_row(
        &mut self,
        targets: &[String],
        columns: &[(String, Type)],
        row: Option<Vec<Datum>>,
        format: &FormatContext,
    ) -> Result<()> {
        let row = row.unwrap_or_else(|| vec![Datum::Null; columns.len()]);
        if let [target] = targets {
            let place = self.place(target)?;
            if let Holds::Record(fields) = &mut self.all[place].holds {
                let named = columns.iter().cloned().zip(row).map(|((name, ty), value)| (name, ty, value));
                *fields = Some(named.collect());
                return Ok(());
            }
        }
        // What is missing is NULL, and what is too much is dropped, as in PostgreSQL.
        let mut values = columns.iter().zip(row);
        for target in targets {
            match values.next() {
                Some(((_, ty), value)) => self.assign(target, value, *ty, format)?,
                None => self.assign(target, Datum::Null, TypeId::Text.into(), format)?,
            }
        }
        Ok(())
    }

    /// What statements see of them, the innermost first, and their values: types and values stand
    /// in the same order.
    pub(super) fn scope(&self) -> (Scope, Vec<(Datum, Type)>) {
        let (mut arguments, mut values) = (Vec::new(), Vec::new());
        let mut add = |qualifier: Option<&String>, is_field, name: &str, ty: Type, value: Datum| {
            arguments.push(Named {
                qualifier: qualifier.cloned(),
                is_field,
                name: Some(name.to_owned()),
                ty,
            });
            values.push((value, ty));
        };
        for variable in self.all.iter().rev() {
            match &variable.holds {
                Holds::Value(ty, value) => {
                    add(variable.label.as_ref(), false, &variable.name, *ty, value.clone());
                }
                Holds::Record(fields) => {
                    for (name, ty, value) in fields.iter().flatten() {
                        add(Some(&variable.name), true, name, *ty, value.clone());
                    }
                }
            }
        }
        add(None, false, "found", TypeId::Bool.into(), Datum::Bool(self.found));
        (Scope { arguments, has_numbers: false }, values)
    }
}

fn check_null(not_null: bool, value: &Datum, name: &str) -> Result<()> {
    if not_null && value.is_null() {
        return Err(SqlError::new(
            sqlstate::NULL_VALUE_NOT_ALLOWED,
            format!("null value cannot be assigned to variable \"{name}\" declared NOT NULL"),
        ));
    }
    Ok(())
}
