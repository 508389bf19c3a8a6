//! PostgreSQL's aggregates, as the row executor computes them, within DataFusion's plans: as aggregates and over windows.
//!
//! A window's frame that moves forward is computed from its rows again for each row: exact, and no slower than the frame is long.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, TypeSignature, Volatility};
use parking_lot::Mutex;

use super::call::carried;
use super::encode::Builder;
use super::{decode, mapping};
use crate::error::{Result, SqlError};
use crate::function::{self, EvalContext, ResolvedFunction};
use crate::types::cast::{self, Cast, CastContext};
use crate::types::{Datum, FormatContext, Type};

/// An aggregate by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Aggregate {
    name: String,
    signature: Signature,
}

impl Aggregate {
    pub(super) fn new(name: &str) -> Aggregate {
        let any = TypeSignature::OneOf(vec![TypeSignature::Nullary, TypeSignature::VariadicAny]);
        Aggregate { name: name.to_owned(), signature: Signature::new(any, Volatility::Immutable) }
    }

    fn resolve<'a>(
        &self,
        types: impl Iterator<Item = &'a DataType>,
    ) -> Result<(ResolvedFunction, Vec<Type>)> {
        let given = types.map(mapping::sql_type).collect::<Result<Vec<_>>>()?;
        Ok((function::resolve(None, &self.name, &given)?, given))
    }

    fn inputs(&self, arguments: &AccumulatorArgs<'_>) -> Result<Inputs> {
        let types = arguments.expr_fields.iter().map(|field| field.data_type());
        let (function, given) = self.resolve(types)?;
        let casts = given
            .iter()
            .zip(&function.arguments)
            .map(|(from, to)| {
                (from.id != to.id).then(|| cast::find(*from, *to, CastContext::Implicit)).flatten()
            })
            .collect();
        Ok(Inputs { function, given, casts, seen: arguments.is_distinct.then(HashSet::new) })
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let (function, _) = self.resolve(types.iter()).map_err(carried)?;
        mapping::arrow_type(function.result).map_err(carried)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        let inputs = self.inputs(&arguments).map_err(carried)?;
        if !arguments.order_bys.is_empty() {
            return Ok(Box::new(Ordered::new(inputs, &arguments)?));
        }
        let running = Mutex::new(inputs.accumulator().map_err(carried)?);
        Ok(Box::new(Growing { inputs, running }))
    }

    /// Each sorts its own input: DataFusion would sort it once for all aggregates of the query.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Beneficial
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> DataFusionResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn create_sliding_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        let inputs = self.inputs(&arguments).map_err(carried)?;
        Ok(Box::new(Sliding { inputs, rows: VecDeque::new() }))
    }
}

/// How argument columns become rows of arguments.
struct Inputs {
    function: ResolvedFunction,
    given: Vec<Type>,
    casts: Vec<Option<Cast>>,
    /// DISTINCT: what was there already.
    seen: Option<HashSet<Vec<Datum>>>,
}

impl Inputs {
    fn accumulator(&self) -> Result<Box<dyn function::Accumulator>> {
        self.function.accumulator().ok_or_else(|| SqlError::internal("an aggregate has an accumulator"))
    }

    fn rows(&self, columns: &[ArrayRef], context: &FormatContext) -> Result<Vec<Vec<Datum>>> {
        let count = columns.first().map_or(0, |column| column.len());
        let mut rows: Vec<Vec<Datum>> = vec![Vec::with_capacity(self.given.len()); count];
        for ((column, given), cast) in columns.iter().zip(&self.given).zip(&self.casts) {
            for (row, value) in rows.iter_mut().zip(decode::column(column, *given)?) {
                row.push(match cast {
                    Some(cast) => cast.apply(&value, context)?,
                    None => value,
                });
            }
        }
        Ok(rows)
    }

    /// Whether a row counts: with DISTINCT it does once.
    fn counts(&mut self, row: &[Datum]) -> bool {
        self.seen.as_mut().is_none_or(|seen| seen.insert(row.to_vec()))
    }

    fn computed<'a>(&self, rows: impl Iterator<Item = &'a Vec<Datum>>) -> Result<ScalarValue> {
        let format = FormatContext::default();
        let context = EvalContext::without_session(&format);
        let mut running = self.accumulator()?;
        for row in rows {
            running.add(row, &context)?;
        }
        self.scalar(&running.finish(&context)?)
    }

    fn scalar(&self, value: &Datum) -> Result<ScalarValue> {
        let mut builder = Builder::new(self.function.result, 1)?;
        builder.append(value)?;
        ScalarValue::try_from_array(&builder.finish(), 0).map_err(super::failure)
    }
}

/// Over a group, or a frame whose begin stays.
struct Growing {
    inputs: Inputs,
    /// Only ever reached through `&mut`.
    running: Mutex<Box<dyn function::Accumulator>>,
}

impl fmt::Debug for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.inputs.function)
    }
}

impl Accumulator for Growing {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let format = FormatContext::default();
        let context = EvalContext::without_session(&format);
        let running = self.running.get_mut();
        for row in self.inputs.rows(values, &format).map_err(carried)? {
            if self.inputs.counts(&row) {
                running.add(&row, &context).map_err(carried)?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let format = FormatContext::default();
        let value = self.running.get_mut().finish(&EvalContext::without_session(&format)).map_err(carried)?;
        self.inputs.scalar(&value).map_err(carried)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.running.lock().memory()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Err(in_parts())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        Err(in_parts())
    }
}

/// Over a group, in an order of its own.
struct Ordered {
    inputs: Inputs,
    keys: RowConverter,
    rows: Vec<(OwnedRow, Vec<Datum>)>,
    /// Bytes in `rows`, about.
    held: usize,
}

impl Ordered {
    fn new(inputs: Inputs, arguments: &AccumulatorArgs<'_>) -> DataFusionResult<Ordered> {
        let fields = arguments
            .order_bys
            .iter()
            .map(|key| Ok(SortField::new_with_options(key.expr.data_type(arguments.schema)?, key.options)))
            .collect::<DataFusionResult<Vec<_>>>()?;
        Ok(Ordered { inputs, keys: RowConverter::new(fields)?, rows: Vec::new(), held: 0 })
    }
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in order", self.inputs.function)
    }
}

impl Accumulator for Ordered {
    /// The columns of the keys come behind those of the arguments.
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let (arguments, keys) = values.split_at(self.inputs.given.len().min(values.len()));
        let rows = self.inputs.rows(arguments, &FormatContext::default()).map_err(carried)?;
        let keys = self.keys.convert_columns(keys)?;
        for (row, key) in rows.into_iter().zip(keys.iter()) {
            if self.inputs.counts(&row) {
                let texts: usize = row.iter().filter_map(Datum::as_str).map(str::len).sum();
                self.held += texts + key.as_ref().len() + size_of_val(row.as_slice());
                self.rows.push((key.owned(), row));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.rows.sort_by(|(left, _), (right, _)| left.cmp(right));
        self.inputs.computed(self.rows.iter().map(|(_, row)| row)).map_err(carried)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.held + self.rows.capacity() * size_of::<(OwnedRow, Vec<Datum>)>()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Err(in_parts())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        Err(in_parts())
    }
}

/// Over a frame whose begin moves.
struct Sliding {
    inputs: Inputs,
    rows: VecDeque<Vec<Datum>>,
}

impl fmt::Debug for Sliding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.inputs.function)
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let rows = self.inputs.rows(values, &FormatContext::default()).map_err(carried)?;
        self.rows.extend(rows);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let gone = values.first().map_or(0, |column| column.len()).min(self.rows.len());
        self.rows.drain(..gone);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.inputs.computed(self.rows.iter()).map_err(carried)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.len() * size_of::<Vec<Datum>>()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Err(in_parts())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        Err(in_parts())
    }
}

/// One thread computes each group: nothing is merged.
fn in_parts() -> datafusion::error::DataFusionError {
    carried(SqlError::internal("an aggregate is not computed in parts"))
}
