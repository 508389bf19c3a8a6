//! Type names as written to types.

use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Ident, IntervalFields, ObjectName,
    ObjectNamePart, TimezoneInfo,
};

use super::Binder;
use super::scope::{name_parts, schema_and_name};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::quote_identifier;
use crate::pg_catalog::other_type;
use crate::types::datetime::interval_text::range;
use crate::types::{DomainUse, FormatContext, ObjectNames, Type, TypeId};

impl Binder<'_> {
    /// A type with its schema, if what is bound has another search path than the session (a view's
    /// query, a domain's condition) and finds it there, or is a view's query that was made with it:
    /// one that came later, in a schema before, does not take that one's place.
    pub(super) fn under_own_path(&self, data_type: &DataType) -> Option<DataType> {
        let is_sessions = self.search_path == self.context.search_path;
        let view = self.view_of_text().filter(|view| view.search_path == self.search_path);
        if is_sessions && view.is_none() {
            return None;
        }
        let mut found = data_type.clone();
        let name = name_without_schema(&mut found)?;
        let (_, alone) = schema_and_name(name).ok()?;
        let catalog = self.context.catalog;
        let meant = match view.and_then(|view| view.known_type(catalog, None, &alone)) {
            Some(known) => known,
            None if is_sessions => return None,
            None => catalog.user_type(&self.search_path, None, &alone)?,
        };
        put_schema(name, meant.schema_name());
        Some(found)
    }
}

/// The name of a type that is not built in, or of the elements of an array.
pub(crate) fn custom_name(data_type: &mut DataType) -> Option<&mut ObjectName> {
    match data_type {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => custom_name(element),
        DataType::Custom(name, _) => Some(name),
        _ => None,
    }
}

/// The schema that stands before the name of a type, or of the elements of an array.
pub(crate) fn schema_of_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => schema_of_type(element),
        DataType::Custom(name, _) => schema_and_name(name).ok()?.0,
        _ => None,
    }
}

/// The name of a type that is not built in, if it has no schema.
pub(crate) fn name_without_schema(data_type: &mut DataType) -> Option<&mut ObjectName> {
    custom_name(data_type).filter(|name| name.0.len() == 1)
}

/// Puts a schema before a name, or in the place of the one that it has.
pub(crate) fn put_schema(name: &mut ObjectName, schema: &str) {
    let schema = match quote_identifier(schema) == schema {
        true => Ident::new(schema),
        false => Ident::with_quote('"', schema),
    };
    name.0.drain(..name.0.len() - 1);
    name.0.insert(0, ObjectNamePart::Identifier(schema));
}

/// The type a syntax tree names, built in or a user's. 42704 if there is none, 0A000 for those of
/// PostgreSQL that are not implemented.
pub fn resolve_type(data_type: &DataType, format: &FormatContext) -> Result<Type> {
    resolve(data_type, format.objects.as_deref())
}

/// The same among the built-in types.
pub(crate) fn resolve_built_in(data_type: &DataType) -> Result<Type> {
    resolve(data_type, None)
}

fn resolve(data_type: &DataType, objects: Option<&dyn ObjectNames>) -> Result<Type> {
    use DataType as D;
    Ok(match data_type {
        D::Character(length) | D::Char(length) => bpchar(length.as_ref())?,
        D::CharacterVarying(length) | D::CharVarying(length) | D::Varchar(length) => {
            varchar(length.as_ref())?
        }
        D::Uuid => TypeId::Uuid.into(),
        D::Numeric(info) | D::Decimal(info) | D::Dec(info) => numeric(info)?,
        D::Float(info) => float(info)?,
        D::Int2(None) | D::SmallInt(None) => TypeId::Int2.into(),
        D::Int(None) | D::Integer(None) | D::Int4(None) => TypeId::Int4.into(),
        D::BigInt(None) | D::Int8(None) => TypeId::Int8.into(),
        D::Real | D::Float4 => TypeId::Float4.into(),
        D::Float8 | D::DoublePrecision => TypeId::Float8.into(),
        D::Bool | D::Boolean => TypeId::Bool.into(),
        D::Date => TypeId::Date.into(),
        D::Time(precision, zone) => match zone {
            TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => fractional(TypeId::Time, *precision)?,
            _ => return Err(SqlError::unsupported("type \"time with time zone\"")),
        },
        D::Timestamp(precision, zone) => match zone {
            TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => fractional(TypeId::Timestamp, *precision)?,
            _ => fractional(TypeId::Timestamptz, *precision)?,
        },
        D::Interval { fields, precision } => interval(fields.as_ref(), *precision)?,
        D::JSON => TypeId::Json.into(),
        D::JSONB => TypeId::Jsonb.into(),
        D::Regclass => TypeId::Regclass.into(),
        D::Text => TypeId::Text.into(),
        D::Bytea => TypeId::Bytea.into(),
        D::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => array(resolve(element, objects)?)?,
        D::Custom(name, modifiers) => custom(name, modifiers, objects)?,
        other => return Err(unknown_type(&other.to_string())),
    })
}

fn unknown_type(name: &str) -> SqlError {
    let lower = name.to_ascii_lowercase();
    let base = lower.split('(').next().unwrap_or(&lower).trim();
    absent(base).unwrap_or_else(|| undefined(&lower))
}

/// The refusal of a type that PostgreSQL has and that there is none of here.
fn absent(name: &str) -> Option<SqlError> {
    other_type(name).map(|_| SqlError::unsupported(format!("type \"{name}\"")))
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

/// 3F000 if there is not even the schema, 0A000 for what PostgreSQL has, 42704 otherwise.
fn unknown_name(parts: &[(String, bool)], objects: Option<&dyn ObjectNames>) -> SqlError {
    if let [(schema, _), _] = parts
        && objects.is_some_and(|objects| objects.schema_oid(schema).is_none())
    {
        let message = format!("schema \"{schema}\" does not exist");
        return SqlError::new(sqlstate::INVALID_SCHEMA_NAME, message);
    }
    let refused = match parts {
        // In quotes it is no word of a type's.
        [(name, false)] => absent(name),
        [(schema, _), (name, _)] if schema == "pg_catalog" => absent(name),
        _ => None,
    };
    let dotted =
        |each: fn(&str) -> String| parts.iter().map(|(part, _)| each(part)).collect::<Vec<_>>().join(".");
    let has_rows =
        || objects.is_some_and(|objects| objects.relation_oid(&dotted(quote_identifier)).is_some());
    let name = dotted(str::to_owned);
    match refused {
        Some(error) => error,
        None if has_rows() => SqlError::unsupported(format!("the row type \"{name}\"")),
        None => undefined(&name),
    }
}

/// The array type over `element` (of arrays too: they have any number of dimensions).
pub(crate) fn array(element: Type) -> Result<Type> {
    if element.id.is_array() {
        return match element.domain {
            DomainUse::Value(_) => Err(SqlError::unsupported("an array of a domain over an array")),
            _ => Ok(element),
        };
    }
    let id = element.id.array().ok_or_else(|| {
        SqlError::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("could not find array type for data type {}", element.id.sql_name()),
        )
    })?;
    let domain = element.domain_oid().map_or(DomainUse::None, DomainUse::Elements);
    Ok(Type { id, modifier: element.modifier, domain })
}

fn length(length: &CharacterLength, name: &str) -> Result<u32> {
    let CharacterLength::IntegerLength { length, .. } = length else {
        return Err(SqlError::syntax("syntax error at or near \"MAX\""));
    };
    character_length(*length, name)
}

fn character_length(length: u64, name: &str) -> Result<u32> {
    let invalid = |what: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what);
    if length < 1 {
        return Err(invalid(format!("length for type {name} must be at least 1")));
    }
    if length > 10_485_760 {
        return Err(invalid(format!("length for type {name} cannot exceed 10485760")));
    }
    Ok(length as u32)
}

fn bpchar(size: Option<&CharacterLength>) -> Result<Type> {
    size.map_or(Ok(Type::bpchar(1)), |size| length(size, "char").map(Type::bpchar))
}

fn varchar(size: Option<&CharacterLength>) -> Result<Type> {
    size.map_or(Ok(TypeId::Varchar.into()), |size| length(size, "varchar").map(Type::varchar))
}

fn numeric(info: &ExactNumberInfo) -> Result<Type> {
    match info {
        ExactNumberInfo::None => Ok(TypeId::Numeric.into()),
        ExactNumberInfo::Precision(precision) => numeric_with(*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => numeric_with(*precision, *scale),
    }
}

fn numeric_with(precision: u64, scale: i64) -> Result<Type> {
    let invalid = |what: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what);
    if !(1..=1000).contains(&precision) {
        return Err(invalid(format!("NUMERIC precision {precision} must be between 1 and 1000")));
    }
    if !(-1000..=1000).contains(&scale) {
        return Err(invalid(format!("NUMERIC scale {scale} must be between -1000 and 1000")));
    }
    Ok(Type::numeric(precision as u16, scale as i16))
}

fn float(info: &ExactNumberInfo) -> Result<Type> {
    match info {
        ExactNumberInfo::None => Ok(TypeId::Float8.into()),
        ExactNumberInfo::Precision(1..=24) => Ok(TypeId::Float4.into()),
        ExactNumberInfo::Precision(25..=53) => Ok(TypeId::Float8.into()),
        ExactNumberInfo::Precision(0) => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "precision for type float must be at least 1 bit",
        )),
        _ => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "precision for type float must be less than 54 bits",
        )),
    }
}

/// A time type with a number of fractional digits; more than six are six, as in PostgreSQL.
fn fractional(id: TypeId, precision: Option<u64>) -> Result<Type> {
    let modifier = precision.map_or(-1, |digits| digits.min(6) as i32);
    Ok(Type::modified(id, modifier))
}

fn interval(fields: Option<&IntervalFields>, precision: Option<u64>) -> Result<Type> {
    let range = fields.map_or(range::FULL, range_of_fields);
    // Digits are those of seconds.
    if precision.is_some() && range & range::SECOND == 0 {
        return Err(SqlError::syntax("syntax error at or near \"(\""));
    }
    let modifier = match (fields, precision) {
        (None, None) => -1,
        (_, precision) => (range << 16) | precision.map_or(0xffff, |digits| digits.min(6) as i32),
    };
    Ok(Type::modified(TypeId::Interval, modifier))
}

/// The bits of an interval's fields.
fn range_of_fields(fields: &IntervalFields) -> i32 {
    use IntervalFields as F;
    use range::{DAY, HOUR, MINUTE, MONTH, SECOND, YEAR};
    match fields {
        F::Year => YEAR,
        F::Month => MONTH,
        F::Day => DAY,
        F::Hour => HOUR,
        F::Minute => MINUTE,
        F::Second => SECOND,
        F::YearToMonth => YEAR | MONTH,
        F::DayToHour => DAY | HOUR,
        F::DayToMinute => DAY | HOUR | MINUTE,
        F::DayToSecond => DAY | HOUR | MINUTE | SECOND,
        F::HourToMinute => HOUR | MINUTE,
        F::HourToSecond => HOUR | MINUTE | SECOND,
        F::MinuteToSecond => MINUTE | SECOND,
    }
}

/// The type of this name that a user has made.
fn of_user(parts: &[(String, bool)], objects: Option<&dyn ObjectNames>) -> Option<Type> {
    let (schema, name) = match parts {
        [(name, _)] => (None, name),
        [(schema, _), (name, _)] => (Some(schema.as_str()), name),
        _ => return None,
    };
    objects?.user_type(schema, name)
}

fn custom(name: &ObjectName, modifiers: &[String], objects: Option<&dyn ObjectNames>) -> Result<Type> {
    let parts = name_parts(name)?;
    let (base, quoted) = match parts.as_slice() {
        [base] => base,
        [(schema, _), base] if schema == "pg_catalog" => base,
        _ if modifiers.is_empty() => {
            return of_user(&parts, objects).ok_or_else(|| unknown_name(&parts, objects));
        }
        _ => return Err(unknown_type(&name.to_string())),
    };
    // "char" in quotes is another type than char.
    let id = if base == "char" && (*quoted || parts.len() == 2) {
        Some(TypeId::InternalChar)
    } else {
        TypeId::from_name(base)
    };
    let Some(id) = id.filter(|id| !matches!(id, TypeId::Any | TypeId::Enum | TypeId::EnumArray)) else {
        let of_user = of_user(&parts, objects).filter(|_| modifiers.is_empty());
        return of_user.ok_or_else(|| unknown_name(&parts, objects));
    };
    let numbers = modifiers
        .iter()
        .map(|text| {
            text.trim()
                .parse::<i64>()
                .map_err(|_| SqlError::syntax("type modifiers must be simple constants"))
        })
        .collect::<Result<Vec<_>>>()?;
    match (id, numbers.as_slice()) {
        (_, []) => Ok(id.into()),
        (TypeId::Varchar, [length]) => {
            Ok(Type::varchar(character_length((*length).max(0) as u64, "varchar")?))
        }
        (TypeId::Bpchar, [length]) => Ok(Type::bpchar(character_length((*length).max(0) as u64, "char")?)),
        (TypeId::Numeric, [precision]) => numeric_with((*precision).max(0) as u64, 0),
        (TypeId::Numeric, [precision, scale]) => numeric_with((*precision).max(0) as u64, *scale),
        (TypeId::Time | TypeId::Timestamp | TypeId::Timestamptz, [digits]) => {
            fractional(id, Some((*digits).max(0) as u64))
        }
        _ => Err(SqlError::syntax(format!("type modifier is not allowed for type \"{base}\""))),
    }
}
