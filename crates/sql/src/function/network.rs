//! Functions and operators of addresses: inet and cidr.

use super::EvalContext;
use super::math::unexpected;
use super::operator::{Operator, infix, prefix};
use super::registry::{Function, plain};
use super::string::from_utf8;
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Bool, Cidr, Inet as Address, Int4, Int8, Text};
use crate::types::inet::mask;
use crate::types::{Datum, Inet};

type Computed = Result<Datum, SqlError>;

fn address(datum: &Datum) -> Result<Inet, SqlError> {
    match datum {
        Datum::Inet(value) => Ok(*value),
        other => Err(unexpected(&[other])),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message.into())
}

fn host(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut text = Vec::new();
    address(&arguments[0])?.write_host(&mut text);
    from_utf8(text)
}

fn family(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int4(if address(&arguments[0])?.is_v6() { 6 } else { 4 }))
}

fn mask_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int4(i32::from(address(&arguments[0])?.bits())))
}

fn network(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Inet(address(&arguments[0])?.network()))
}

fn netmask(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = address(&arguments[0])?;
    Ok(Datum::Inet(value.with(mask(value.bits()), value.max_bits())))
}

/// The bits of an address that do not name the network.
fn host_bits(value: Inet) -> u128 {
    mask(value.max_bits()) & !mask(value.bits())
}

fn host_mask(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = address(&arguments[0])?;
    Ok(Datum::Inet(value.with(host_bits(value), value.max_bits())))
}

fn broadcast(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = address(&arguments[0])?;
    Ok(Datum::Inet(value.with(value.word() | host_bits(value), value.bits())))
}

/// The same address with another number of bits; with -1 all of them.
fn with_mask_length(arguments: &[Datum]) -> Result<Inet, SqlError> {
    let (value, length) = (address(&arguments[0])?, arguments[1].as_i64().unwrap_or(-1));
    let bits = if length == -1 { Some(value.max_bits()) } else { u8::try_from(length).ok() };
    match bits.filter(|bits| *bits <= value.max_bits()) {
        Some(bits) => Ok(value.with(value.word(), bits)),
        None => Err(invalid(format!("invalid mask length: {length}"))),
    }
}

fn set_mask_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    with_mask_length(arguments).map(Datum::Inet)
}

fn set_network_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    with_mask_length(arguments).map(|value| Datum::Inet(value.network()))
}

fn same_family(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(address(&arguments[0])?.is_v6() == address(&arguments[1])?.is_v6()))
}

/// The smallest network that both are in.
fn merge(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (a, b) = (address(&arguments[0])?, address(&arguments[1])?);
    if a.is_v6() != b.is_v6() {
        return Err(invalid("cannot merge addresses from different families"));
    }
    let common = (a.word() ^ b.word()).leading_zeros();
    let bits = a.bits().min(b.bits()).min(u8::try_from(common).unwrap_or(u8::MAX));
    Ok(Datum::Inet(a.with(a.word(), bits).network()))
}

fn is_inside(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (a, b) = (address(a)?, address(b)?);
    Ok(Datum::Bool(a.bits() > b.bits() && a.shares(b, b.bits())))
}

fn is_inside_or_equal(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (a, b) = (address(a)?, address(b)?);
    Ok(Datum::Bool(a.bits() >= b.bits() && a.shares(b, b.bits())))
}

fn contains(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    is_inside(b, a, context)
}

fn contains_or_equals(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    is_inside_or_equal(b, a, context)
}

fn overlaps(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (a, b) = (address(a)?, address(b)?);
    Ok(Datum::Bool(a.shares(b, a.bits().min(b.bits()))))
}

fn not(a: &Datum, _: &EvalContext<'_>) -> Computed {
    let value = address(a)?;
    Ok(Datum::Inet(value.with(!value.word() & mask(value.max_bits()), value.bits())))
}

/// Two addresses of one family, bit by bit.
fn combined(a: &Datum, b: &Datum, name: &str, combine: fn(u128, u128) -> u128) -> Computed {
    let (a, b) = (address(a)?, address(b)?);
    if a.is_v6() != b.is_v6() {
        return Err(invalid(format!("cannot {name} inet values of different sizes")));
    }
    Ok(Datum::Inet(a.with(combine(a.word(), b.word()), a.bits().max(b.bits()))))
}

fn and(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    combined(a, b, "AND", |a, b| a & b)
}

fn or(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    combined(a, b, "OR", |a, b| a | b)
}

fn out_of_range() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "result is out of range")
}

/// The address as a number of its own width.
fn number(value: Inet) -> u128 {
    value.word() >> (128 - u32::from(value.max_bits()))
}

fn moved(value: Inet, by: i128) -> Computed {
    let largest = u128::MAX >> (128 - u32::from(value.max_bits()));
    let sum = number(value).checked_add_signed(by).filter(|sum| *sum <= largest);
    let word = sum.ok_or_else(out_of_range)? << (128 - u32::from(value.max_bits()));
    Ok(Datum::Inet(value.with(word, value.bits())))
}

fn add(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    moved(address(a)?, i128::from(b.as_i64().unwrap_or(0)))
}

fn added_to(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    add(b, a, context)
}

fn subtract(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    moved(address(a)?, -i128::from(b.as_i64().unwrap_or(0)))
}

fn distance(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (a, b) = (address(a)?, address(b)?);
    if a.is_v6() != b.is_v6() {
        return Err(invalid("cannot subtract inet values of different sizes"));
    }
    let (from, to) = (number(b), number(a));
    let apart = i128::try_from(from.abs_diff(to)).map_err(|_| out_of_range())?;
    let signed = if to < from { -apart } else { apart };
    i64::try_from(signed).map(Datum::Int8).map_err(|_| out_of_range())
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(699, "host", &[Address], Text, host),
    plain(711, "family", &[Address], Int4, family),
    plain(697, "masklen", &[Address], Int4, mask_length),
    plain(683, "network", &[Address], Cidr, network),
    plain(696, "netmask", &[Address], Address, netmask),
    plain(1362, "hostmask", &[Address], Address, host_mask),
    plain(698, "broadcast", &[Address], Address, broadcast),
    plain(605, "set_masklen", &[Address, Int4], Address, set_mask_length),
    plain(635, "set_masklen", &[Cidr, Int4], Cidr, set_network_length),
    plain(4071, "inet_same_family", &[Address, Address], Bool, same_family),
    plain(4063, "inet_merge", &[Address, Address], Cidr, merge),
];

pub(super) fn operators() -> Vec<Operator> {
    vec![
        infix("<<", Address, Address, Bool, is_inside),
        infix("<<=", Address, Address, Bool, is_inside_or_equal),
        infix(">>", Address, Address, Bool, contains),
        infix(">>=", Address, Address, Bool, contains_or_equals),
        infix("&&", Address, Address, Bool, overlaps),
        prefix("~", Address, Address, not),
        infix("&", Address, Address, Address, and),
        infix("|", Address, Address, Address, or),
        infix("+", Address, Int8, Address, add),
        infix("+", Int8, Address, Address, added_to),
        infix("-", Address, Int8, Address, subtract),
        infix("-", Address, Address, Int8, distance),
    ]
}
