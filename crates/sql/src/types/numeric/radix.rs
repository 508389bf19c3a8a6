//! Big integers and their decimal digits.

use num_bigint::{BigInt, BigUint};

use super::big_power_of_ten;

/// Digits up to which the library reads a number fast enough; more are read in halves.
const AT_ONCE: usize = 2000;

/// Number of decimal digits; 1 for 0.
pub(super) fn digits(value: &BigUint) -> u64 {
    let excess = value.bits().saturating_sub(64);
    let top = (value >> excess).iter_u64_digits().next().unwrap_or(0);
    if top == 0 {
        return 1;
    }
    let logarithm = (top as f64).log10() + excess as f64 * std::f64::consts::LOG10_2;
    // The error is far below a millionth: only next to a power of ten it is compared.
    let near = logarithm.round();
    if (logarithm - near).abs() > 1e-6 {
        return logarithm.floor() as u64 + 1;
    }
    let power = big_power_of_ten(near as u32);
    near as u64 + u64::from(value >= power.magnitude())
}

/// The number that decimal digits (and nothing else) spell. Multiplies halves, so that it takes
/// little more than a product of that size.
pub(super) fn parse(digits: &[u8]) -> Option<BigInt> {
    if digits.len() <= AT_ONCE {
        return BigInt::parse_bytes(if digits.is_empty() { b"0" } else { digits }, 10);
    }
    let low = digits.len() / 2;
    let (high, rest) = digits.split_at(digits.len() - low);
    Some(parse(high)? * big_power_of_ten(low as u32) + parse(rest)?)
}

/// The decimal digits, without zeros before them; `0` for 0.
pub(super) fn text(value: &BigUint) -> Vec<u8> {
    value.to_string().into_bytes()
}
