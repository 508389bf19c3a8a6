//! PostgreSQL's operators, functions and casts, as the row executor computes them, within DataFusion's plans.
//!
//! DataFusion plans around the values; the values themselves are computed by the same code as in the row executor. So the two cannot
//! differ in rounding, ranges, messages or SQLSTATEs. A call decodes its columns to datums and encodes the results, a batch at a time. Only
//! integer arithmetic and comparisons that Arrow does exactly alike are left to Arrow (see [`rewrite`](super::rewrite)).

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use super::encode::Builder;
use super::syntax::prefix_operator;
use super::{Surroundings, decode, functions, mapping};
use crate::bind::common_type;
use crate::error::{Result, SqlError, sqlstate};
use crate::function::operator::{self, ResolvedOperator};
use crate::function::{self, EvalContext, ResolvedFunction};
use crate::keys::{KeyOrder, encode_into};
use crate::types::cast::{self, Cast, CastContext};
use crate::types::{Datum, FormatContext, Type, TypeId};

/// What calls depend on beside their arguments; travels in the query's configuration.
#[derive(Clone, Debug, Default)]
struct Moment {
    format: FormatContext,
    statement_time: i64,
}

impl ConfigExtension for Moment {
    const PREFIX: &'static str = "cognate";
}

impl ExtensionOptions for Moment {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> DataFusionResult<()> {
        Err(DataFusionError::Configuration(format!("{key} cannot be set")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// An error of ours on its way through DataFusion.
pub(super) fn carried(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// What computes a call.
#[derive(Clone, Debug)]
enum Body {
    Operator(Box<ResolvedOperator>),
    Function(Box<ResolvedFunction>),
    Cast(Box<Cast>),
    /// A text that sorts, and is equal, as the values are: the bytes of their keys, each as one character. DataFusion's windows
    /// take no binary column for their order.
    Key,
}

/// A call with its operands' types settled.
#[derive(Clone, Debug)]
pub(super) struct Call {
    body: Body,
    name: String,
    /// Types of the operands as they come.
    given: Vec<Type>,
    result: DataType,
    result_type: Type,
    /// Tells calls apart.
    identity: String,
    signature: Signature,
}

impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        self.identity == other.identity
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl Call {
    fn new(body: Body, name: &str, given: &[Type], result: Type, immutable: bool) -> Result<Call> {
        let arrow = mapping::arrow_type(result)?;
        // What depends on the session's settings must not be computed at planning.
        let volatility = if immutable { Volatility::Immutable } else { Volatility::Volatile };
        let signature = match given.len() {
            0 => Signature::nullary(volatility),
            count => Signature::any(count, volatility),
        };
        let identity = format!("{name} {given:?} {result:?} {body:?}");
        Ok(Call {
            body,
            name: name.to_owned(),
            given: given.to_vec(),
            result: arrow,
            result_type: result,
            identity,
            signature,
        })
    }

    /// An operator applied; no left operand for a prefix one. 42883.
    pub(super) fn operator(name: &str, left: Option<Type>, right: Type) -> Result<Call> {
        let resolved = operator::resolve(name, left, right)?;
        let immutable = resolved.volatility() == function::Volatility::Immutable;
        let given: Vec<Type> = left.into_iter().chain([right]).collect();
        let result = resolved.result;
        Call::new(Body::Operator(Box::new(resolved)), name, &given, result, immutable)
    }

    /// A function called. 42883.
    fn function(name: &str, given: &[Type]) -> Result<Call> {
        let resolved = function::resolve(None, name, given)?;
        let immutable = resolved.volatility() == function::Volatility::Immutable;
        let result = resolved.result;
        Call::new(Body::Function(Box::new(resolved)), name, given, result, immutable)
    }

    /// A conversion that was written down. 42846.
    pub(super) fn cast(from: Type, to: Type) -> Result<Call> {
        let cast = cast::find(from, to, CastContext::Explicit).ok_or_else(|| cast::cannot_cast(from, to))?;
        let immutable = cast.is_immutable();
        Call::new(Body::Cast(Box::new(cast)), "cast", &[from], to, immutable)
    }

    /// A function called, or the prefix operator that [`syntax`](super::syntax) made one. 42883.
    pub(super) fn named(name: &str, given: &[Type]) -> Result<Call> {
        match (prefix_operator(name), given) {
            (Some(sign), [operand]) => Call::operator(sign, None, *operand),
            _ => Call::function(name, given),
        }
    }

    /// What values of `ty` sort by.
    pub(super) fn key(ty: Type) -> Result<Call> {
        Call::new(Body::Key, "sort_key", &[ty], Type::new(TypeId::Text), true)
    }

    /// Types its operands are converted to, in order.
    pub(super) fn wanted(&self) -> Vec<Type> {
        match &self.body {
            Body::Operator(operator) => operator.left.into_iter().chain([operator.right]).collect(),
            Body::Function(function) => function.arguments.to_vec(),
            Body::Cast(cast) => vec![cast.from],
            Body::Key => self.given.clone(),
        }
    }

    /// The call as an expression. Untyped parameters become of the type the call wants.
    pub(super) fn expr(self, operands: Vec<Expr>) -> Result<Expr> {
        let wanted = self.wanted();
        let operands = operands
            .into_iter()
            .zip(wanted)
            .map(|(operand, ty)| settle(operand, ty))
            .collect::<Result<Vec<_>>>()?;
        if let Some(value) = self.constant(&operands) {
            return Ok(Expr::Literal(value, None));
        }
        let udf = ScalarUDF::new_from_impl(self);
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(udf), operands)))
    }

    fn compute(&self, values: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
        match (&self.body, values) {
            (Body::Operator(operator), [right]) => operator.call(&Datum::Null, right, context),
            (Body::Operator(operator), [left, right]) => operator.call(left, right, context),
            (Body::Function(function), values) => function.call(values, context),
            (Body::Cast(cast), [value]) => cast.apply(value, context.format),
            (Body::Key, [Datum::Null]) => Ok(Datum::Null),
            (Body::Key, [value]) => {
                let mut bytes = Vec::new();
                encode_into(&mut bytes, value, KeyOrder::ASCENDING);
                Ok(Datum::text(bytes.into_iter().map(char::from).collect::<String>()))
            }
            _ => Err(SqlError::internal("a call has operands of its own")),
        }
    }

    /// The value of a call of literals that depends on nothing else. None for texts, which would pass for untyped literals,
    /// and where it fails: only who reads it fails.
    fn constant(&self, operands: &[Expr]) -> Option<ScalarValue> {
        if self.signature.volatility != Volatility::Immutable || self.result == DataType::Utf8 {
            return None;
        }
        let mut columns = Vec::with_capacity(operands.len());
        for (operand, given) in operands.iter().zip(&self.given) {
            let Expr::Literal(value, _) = operand else { return None };
            columns.push(decode::column(&value.to_array().ok()?, *given).ok()?);
        }
        let column = self.rows(&columns, 1, &Moment::default()).ok()?;
        ScalarValue::try_from_array(&column, 0).ok()
    }

    fn invoke(&self, arguments: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = !arguments.args.is_empty()
            && arguments.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { arguments.number_rows };
        let mut operands = Vec::with_capacity(arguments.args.len());
        for (argument, given) in arguments.args.iter().zip(&self.given) {
            operands.push(match argument {
                ColumnarValue::Array(array) => decode::column(array, *given)?,
                ColumnarValue::Scalar(scalar) => {
                    decode::column(&scalar.to_array().map_err(super::failure)?, *given)?
                }
            });
        }
        let moment = arguments
            .config_options
            .extensions
            .get::<Moment>()
            .ok_or_else(|| SqlError::internal("a call does not know its session"))?;
        let column = self.rows(&operands, rows, moment)?;
        if constant {
            return ScalarValue::try_from_array(&column, 0)
                .map(ColumnarValue::Scalar)
                .map_err(super::failure);
        }
        Ok(ColumnarValue::Array(column))
    }

    /// The results of `rows` calls. An operand has a value for each, or one for all.
    fn rows(&self, operands: &[Vec<Datum>], rows: usize, moment: &Moment) -> Result<ArrayRef> {
        let casts = self.conversions()?;
        let context = EvalContext {
            statement_time: moment.statement_time,
            ..EvalContext::without_session(&moment.format)
        };
        let mut values = vec![Datum::Null; operands.len()];
        let mut builder = Builder::new(self.result_type, rows)?;
        for row in 0..rows {
            for (place, (operand, cast)) in operands.iter().zip(&casts).enumerate() {
                let value = if operand.len() == 1 { &operand[0] } else { &operand[row] };
                values[place] = match cast {
                    Some(cast) => cast.apply(value, context.format)?,
                    None => value.clone(),
                };
            }
            builder.append(&self.compute(&values, &context)?)?;
        }
        Ok(builder.finish())
    }

    /// The conversions of the operands; none where there is nothing to convert.
    fn conversions(&self) -> Result<Vec<Option<Cast>>> {
        self.given
            .iter()
            .zip(self.wanted())
            .map(|(given, wanted)| {
                if given.id == wanted.id {
                    return Ok(None);
                }
                let cast = cast::find(*given, wanted, CastContext::Implicit)
                    .ok_or_else(|| cast::cannot_cast(*given, wanted))?;
                Ok(Some(cast))
            })
            .collect()
    }
}

impl ScalarUDFImpl for Call {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.result.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        self.invoke(&arguments).map_err(carried)
    }
}

/// A function by its name, before its arguments are settled. [`rewrite`](super::rewrite) makes a [`Call`] of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    name: String,
    signature: Signature,
}

impl Named {
    pub(super) fn new(name: &str) -> Named {
        let any = TypeSignature::OneOf(vec![TypeSignature::Nullary, TypeSignature::VariadicAny]);
        Named { name: name.to_owned(), signature: Signature::new(any, Volatility::Volatile) }
    }

    fn result(&self, types: &[Type]) -> Result<DataType> {
        if !functions::is_expression(&self.name) {
            return Ok(Call::named(&self.name, types)?.result);
        }
        let ty = match (self.name.as_str(), types) {
            ("nullif", [value, ..]) => *value,
            _ => common(types)?,
        };
        mapping::arrow_type(Type::new(ty.id))
    }

    /// The function of this name called.
    pub(super) fn expr(name: &str, arguments: Vec<Expr>) -> Expr {
        let udf = ScalarUDF::new_from_impl(Named::new(name));
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(udf), arguments))
    }
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(carried(SqlError::internal("a function's type depends on its arguments")))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        let types = arguments
            .arg_fields
            .iter()
            .zip(arguments.scalar_arguments)
            .map(|(field, scalar)| match scalar {
                Some(ScalarValue::Utf8(_) | ScalarValue::Null) => Ok(Type::new(TypeId::Unknown)),
                _ => mapping::sql_type(field.data_type()),
            })
            .collect::<Result<Vec<_>>>()
            .map_err(carried)?;
        let result = self.result(&types).map_err(carried)?;
        Ok(Arc::new(datafusion::arrow::datatypes::Field::new(&self.name, result, true)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(carried(SqlError::internal(format!("function {} was not settled", self.name))))
    }
}

/// The type that PostgreSQL finds for all these values. 42804.
pub(super) fn common(types: &[Type]) -> Result<Type> {
    let ty = common_type(types).map_err(|(one, other)| {
        let (one, other) = (one.id.sql_name(), other.id.sql_name());
        let message = format!("types {one} and {other} cannot be matched");
        SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
    })?;
    Ok(Type::new(if ty.id == TypeId::Unknown { TypeId::Text } else { ty.id }))
}

/// A parameter without a type gets `ty`; anything else stays.
pub(super) fn settle(operand: Expr, ty: Type) -> Result<Expr> {
    match operand {
        Expr::Placeholder(mut placeholder) if placeholder.field.is_none() => {
            let ty = if ty.id == TypeId::Unknown { Type::new(TypeId::Text) } else { ty };
            let field = datafusion::arrow::datatypes::Field::new("", mapping::arrow_type(ty)?, true);
            placeholder.field = Some(Arc::new(field));
            Ok(Expr::Placeholder(placeholder))
        }
        other => Ok(other),
    }
}

/// The configuration with what calls depend on.
pub(super) fn at_moment(options: &mut ConfigOptions, surroundings: &Surroundings<'_>) {
    let Surroundings { format, statement_time, .. } = *surroundings;
    options.extensions.insert(Moment { format: format.clone(), statement_time });
}
