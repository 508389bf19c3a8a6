//! The variables of a block that runs, and of those around it.

use crate::error::{Result, SqlError, sqlstate};
use crate::routine::{self, Named, Scope};
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
    Record(Record),
}

#[derive(Debug)]
struct Record {
    /// Once it has any.
    fields: Option<Vec<(String, Type, Datum)>>,
    /// They are those of a table, whatever the columns are that it is given.
    is_of_table: bool,
    /// It has been given a row.
    is_given: bool,
}

impl Record {
    /// What is missing is NULL, and what is too much is dropped, as in PostgreSQL.
    fn assign(&mut self, columns: &[(String, Type)], row: Vec<Datum>, format: &FormatContext) -> Result<()> {
        let mut values = columns.iter().zip(row);
        match &mut self.fields {
            Some(fields) if self.is_of_table => {
                let mut converted = Vec::with_capacity(fields.len());
                for (_, ty, _) in fields.iter() {
                    converted.push(match values.next() {
                        Some(((_, from), value)) => convert(value, *from, *ty, format)?,
                        None => Datum::Null,
                    });
                }
                for ((_, _, held), value) in fields.iter_mut().zip(converted) {
                    *held = value;
                }
            }
            held => {
                let named = values.map(|((name, ty), value)| (name.clone(), *ty, value));
                *held = Some(named.collect());
            }
        }
        self.is_given = true;
        Ok(())
    }
}

/// Variables, the outermost first, which is FOUND.
#[derive(Debug)]
pub(super) struct Variables {
    all: Vec<Variable>,
}

/// The value as one of another type: as an assignment converts it, or by its text.
pub(super) fn convert(value: Datum, from: Type, to: Type, format: &FormatContext) -> Result<Datum> {
    if let Some(found) = cast::find(from, to, CastContext::Assignment) {
        return if found.is_noop() { Ok(value) } else { found.apply(&value, format) };
    }
    let read = cast::find(TypeId::Unknown.into(), to, CastContext::Assignment).ok_or_else(|| {
        SqlError::new(
            sqlstate::DATATYPE_MISMATCH,
            format!("a value of type {} cannot become one of type {}", from.id.sql_name(), to.id.sql_name()),
        )
    })?;
    let is_null = value.is_null();
    let text = if is_null { Datum::Null } else { Datum::Text(value.to_text_string(from, format).into()) };
    read.apply(&text, format)
}

impl Variables {
    pub(super) fn new() -> Variables {
        let found = Variable {
            label: Some(super::NAME.to_owned()),
            name: "found".to_owned(),
            holds: Holds::Value(TypeId::Bool.into(), Datum::Bool(false)),
            constant: false,
            not_null: false,
        };
        Variables { all: vec![found] }
    }

    /// So many there are; [`Variables::truncate`] takes those away that came later.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn truncate(&mut self, count: usize) {
        self.all.truncate(count);
    }

    /// FOUND: whether the last statement had rows.
    pub(super) fn set_found(&mut self, found: bool) {
        self.all[0].holds = Holds::Value(TypeId::Bool.into(), Datum::Bool(found));
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
        // Nothing looks at a domain's constraints here: who stores what a field holds does.
        let field = |(name, ty): (String, Type)| (name, ty.bare(), Datum::Null);
        let fields: Option<Vec<_>> = fields.map(|fields| fields.into_iter().map(field).collect());
        let is_of_table = fields.is_some();
        self.all.push(Variable {
            label: label.map(str::to_owned),
            name: name.to_owned(),
            holds: Holds::Record(Record { fields, is_of_table, is_given: false }),
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
            if let Holds::Record(record) = &mut self.all[place].holds {
                return record.assign(columns, row, format);
            }
        }
        // As with the fields of a record.
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
        let (mut arguments, mut values) = (Vec::with_capacity(self.all.len()), Vec::new());
        for variable in self.all.iter().rev() {
            let holds = match &variable.holds {
                Holds::Value(ty, value) => {
                    values.push((value.clone(), *ty));
                    routine::Holds::Value(*ty)
                }
                Holds::Record(record) => {
                    values.extend(record.fields.iter().flatten().map(|(_, ty, value)| (value.clone(), *ty)));
                    let fields = record
                        .fields
                        .as_ref()
                        .map(|fields| fields.iter().map(|(name, ty, _)| (name.clone(), *ty)).collect());
                    routine::Holds::Record { fields, is_given: record.is_given }
                }
            };
            let name = Some(variable.name.clone());
            arguments.push(Named { qualifier: variable.label.clone(), name, holds });
        }
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
