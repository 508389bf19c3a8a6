//! Rows of an INSERT that stay text until they are inserted.
//!
//! The parser leaves long runs of rows of plain literals as they are (see `parse/rows`). Binding
//! reads each of them once, so that a value that cannot be of its column's type is refused before
//! anything is done, and remembers one conversion for each column and kind of literal. Running
//! reads them again, one row at a time: the statement's memory does not depend on their number.

use std::sync::Arc;

use super::run;
use crate::bind::{Binder, literal, read_literal};
use crate::error::{Result, SqlError};
use crate::expr::{Expr, ReadContext, Typed};
use crate::function::EvalContext;
use crate::parse::{Literal, Reader, Run};
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, Type, TypeId};

/// Rows read between two questions whether to stop.
const ROWS_UNASKED: usize = 64;

/// A run of rows, and what becomes of them.
#[derive(Debug)]
pub(crate) struct LiteralRows {
    source: Arc<str>,
    run: Run,
    /// The complete row, with the defaults of columns that are given nothing.
    pub(crate) complete: Vec<Expr>,
    /// For each literal of a row its column; none if it is dropped.
    columns: Vec<Option<Column>>,
}

/// A column that is given values.
#[derive(Debug)]
struct Column {
    place: usize,
    ty: Type,
    name: String,
    /// How a text becomes a value that cannot be read without the session's catalog.
    from_text: Option<Expr>,
    /// How literals of other types become values, as far as they occur.
    conversions: Vec<(TypeId, Conversion)>,
}

/// From the value in the frame's only place.
#[derive(Debug)]
enum Conversion {
    /// It is the value.
    Same,
    By(Expr),
}

impl LiteralRows {
    /// Binds a run of rows whose literals go to these columns: place, type and name, or nowhere.
    /// The other places of the complete row have their defaults.
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        run: Run,
        complete: Vec<Expr>,
        targets: Vec<Option<(usize, Type, String)>>,
    ) -> Result<LiteralRows> {
        let source = Arc::clone(binder.context.source);
        let new = |(place, ty, name)| {
            let (from_text, conversions) = (from_text(ty)?, Vec::new());
            Ok(Column { place, ty, name, from_text, conversions })
        };
        let columns = targets.into_iter().map(|target| target.map(new).transpose()).collect::<Result<_>>()?;
        let mut rows = LiteralRows { source, run, complete, columns };
        rows.check(binder)?;
        Ok(rows)
    }

    pub(crate) fn count(&self) -> usize {
        self.run.rows
    }

    /// Reads all rows and forgets them.
    fn check(&mut self, binder: &mut Binder<'_>) -> Result<()> {
        let source = Arc::clone(&self.source);
        let (mut reader, mut row, mut count) = (Reader::new(&source, self.run), Vec::new(), 0_usize);
        while reader.next_row(&mut row) {
            if count.is_multiple_of(ROWS_UNASKED) {
                binder.context.eval.check_interrupt()?;
            }
            count += 1;
            for (literal, column) in row.iter().zip(&mut self.columns) {
                if let Some(column) = column {
                    column.check(binder, literal)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.source, self.run)
    }

    /// Puts the literals of one row in their places of `into`.
    pub(crate) fn fill(&self, row: &[Literal<'_>], read: &ReadContext<'_>, into: &mut [Datum]) -> Result<()> {
        for (literal, column) in row.iter().zip(&self.columns) {
            if let Some(column) = column {
                into[column.place] = column.value(literal, read)?;
            }
        }
        Ok(())
    }
}

/// The conversion of texts to a type of which names are values.
fn from_text(ty: Type) -> Result<Option<Expr>> {
    let names = |ty: TypeId| ty.is_oid() && ty != TypeId::Oid;
    if !names(ty.id) && !ty.id.element().is_some_and(names) {
        return Ok(None);
    }
    let unknown = TypeId::Unknown.into();
    let found = cast::find(unknown, ty, CastContext::Explicit);
    let found = found.ok_or_else(|| cast::cannot_cast(unknown, ty))?;
    Ok(Some(Expr::Cast(Box::new((Expr::Slot(0), found)))))
}

/// The value of a literal that is no text, and its type.
fn plain(value: &Literal<'_>) -> Result<(Datum, TypeId)> {
    match value {
        Literal::Null | Literal::Text(_) => Ok((Datum::Null, TypeId::Unknown)),
        Literal::Bool(value) => Ok((Datum::Bool(*value), TypeId::Bool)),
        Literal::Number(digits) => literal::number(digits),
    }
}

impl Column {
    /// Sees that the literal can be a value of the column, and knows afterwards how.
    fn check(&mut self, binder: &mut Binder<'_>, literal: &Literal<'_>) -> Result<()> {
        match literal {
            Literal::Null => Ok(()),
            Literal::Text(text) => self.text(text, &binder.context.eval).map(drop),
            other => {
                let (_, from) = plain(other)?;
                if self.conversions.iter().any(|(known, _)| *known == from) {
                    return Ok(());
                }
                let slot = Typed::new(Expr::Slot(0), from);
                let conversion = match binder.assign(slot, self.ty, &self.name)?.expr {
                    Expr::Slot(_) => Conversion::Same,
                    expr => Conversion::By(expr),
                };
                self.conversions.push((from, conversion));
                Ok(())
            }
        }
    }

    fn text(&self, text: &str, context: &EvalContext<'_>) -> Result<Datum> {
        read_literal(text, self.ty, CastContext::Assignment, context.format)
    }

    fn value(&self, literal: &Literal<'_>, read: &ReadContext<'_>) -> Result<Datum> {
        match (literal, &self.from_text) {
            (Literal::Null, _) => Ok(Datum::Null),
            (Literal::Text(text), None) => self.text(text, &read.eval),
            (Literal::Text(text), Some(expr)) => run::evaluate(expr, &[Datum::text(&**text)], read),
            (other, _) => {
                let (value, from) = plain(other)?;
                match self.conversions.iter().find(|(known, _)| *known == from) {
                    Some((_, Conversion::Same)) => Ok(value),
                    Some((_, Conversion::By(expr))) => run::evaluate(expr, &[value], read),
                    None => Err(SqlError::internal("a literal was not bound")),
                }
            }
        }
    }
}
