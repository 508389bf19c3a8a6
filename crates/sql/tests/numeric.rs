//! Numerics against exact rationals.

use std::cmp::Ordering;

use cognate_sql::types::Numeric;
use num_bigint::BigInt;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::random::{self, config};

/// A fraction; the divisor is positive.
#[derive(Clone, Debug)]
struct Rational {
    numerator: BigInt,
    divisor: BigInt,
}

impl Rational {
    fn of(value: &Numeric) -> Rational {
        let text = value.to_string();
        let (integer, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let digits: BigInt = format!("{integer}{fraction}").parse().expect("digits");
        Rational { numerator: digits, divisor: BigInt::from(10).pow(fraction.len() as u32) }
    }

    fn add(&self, other: &Rational) -> Rational {
        Rational {
            numerator: &self.numerator * &other.divisor + &other.numerator * &self.divisor,
            divisor: &self.divisor * &other.divisor,
        }
    }

    fn negate(&self) -> Rational {
        Rational { numerator: -&self.numerator, divisor: self.divisor.clone() }
    }

    fn multiply(&self, other: &Rational) -> Rational {
        Rational { numerator: &self.numerator * &other.numerator, divisor: &self.divisor * &other.divisor }
    }

    fn compare(&self, other: &Rational) -> Ordering {
        (&self.numerator * &other.divisor).cmp(&(&other.numerator * &self.divisor))
    }

    fn abs(&self) -> Rational {
        Rational {
            numerator: BigInt::from(self.numerator.magnitude().clone()),
            divisor: self.divisor.clone(),
        }
    }
}

fn finite() -> impl Strategy<Value = Numeric> {
    random::numeric().prop_filter("finite", Numeric::is_finite)
}

fn half_unit(scale: u32) -> Rational {
    Rational { numerator: BigInt::from(1), divisor: BigInt::from(10).pow(scale) * 2 }
}

#[test]
fn sums_products_and_order_are_exact() {
    let check = |(a, b): (Numeric, Numeric)| {
        let (x, y) = (Rational::of(&a), Rational::of(&b));
        let sum = a.add(&b).expect("a sum");
        prop_assert_eq!(Rational::of(&sum).compare(&x.add(&y)), Ordering::Equal, "{} + {}", a, b);
        prop_assert_eq!(sum.scale(), a.scale().max(b.scale()));
        let difference = a.subtract(&b).expect("a difference");
        prop_assert_eq!(
            Rational::of(&difference).compare(&x.add(&y.negate())),
            Ordering::Equal,
            "{} - {}",
            a,
            b
        );
        let product = a.multiply(&b).expect("a product");
        prop_assert_eq!(Rational::of(&product).compare(&x.multiply(&y)), Ordering::Equal, "{} * {}", a, b);
        prop_assert_eq!(product.scale(), a.scale() + b.scale());
        prop_assert_eq!(a.cmp(&b), x.compare(&y), "{} {}", a, b);
        prop_assert_eq!(a.normalized(), a);
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&(finite(), finite()), check).expect("exact");
}

#[test]
fn quotients_are_rounded_to_their_scale() {
    let check = |(a, b): (Numeric, Numeric)| {
        if b.is_zero() {
            prop_assert_eq!(a.divide(&b).expect_err("by zero").sqlstate, "22012");
            return Ok(());
        }
        let quotient = a.divide(&b).expect("a quotient");
        // |q - a/b| <= half a unit, that is |q*b - a| <= |b| * half a unit
        let (x, y, q) = (Rational::of(&a), Rational::of(&b), Rational::of(&quotient));
        let error = q.multiply(&y).add(&x.negate()).abs();
        let bound = y.abs().multiply(&half_unit(quotient.scale()));
        prop_assert!(error.compare(&bound) != Ordering::Greater, "{} / {} = {}", a, b, quotient);
        // a = truncated * b + remainder, and the remainder has the sign of a and is smaller than b.
        let remainder = a.remainder(&b).expect("a remainder");
        let whole = a.divide_truncating(&b).expect("a whole quotient");
        let back = whole.multiply(&b).and_then(|p| p.add(&remainder)).expect("a sum");
        prop_assert_eq!(&back, &a);
        prop_assert!(remainder.abs() < b.abs());
        prop_assert!(remainder.is_zero() || remainder.signum() == a.signum());
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&(finite(), finite()), check).expect("rounded");
}

#[test]
fn rounding_is_half_away_from_zero() {
    let check = |(a, scale): (Numeric, i32)| {
        let rounded = a.round(scale);
        let x = Rational::of(&a);
        let unit = if scale >= 0 {
            half_unit(scale as u32)
        } else {
            Rational { numerator: BigInt::from(10).pow(scale.unsigned_abs()), divisor: BigInt::from(2) }
        };
        let error = Rational::of(&rounded).add(&x.negate());
        let ordering = error.abs().compare(&unit);
        prop_assert!(ordering != Ordering::Greater, "round({}, {}) = {}", a, scale, rounded);
        if ordering == Ordering::Equal {
            prop_assert!(rounded.abs() > a.abs(), "round({}, {}) = {}", a, scale, rounded);
        }
        prop_assert!(a.truncate(scale).abs() <= a.abs());
        prop_assert!(a.floor() <= a && a <= a.ceil());
        prop_assert!(a.ceil().subtract(&a.floor()).expect("a difference") <= Numeric::from(1i64));
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&(finite(), -30i32..60), check).expect("half away from zero");
}

#[test]
fn square_roots_are_the_nearest() {
    let check = |a: Numeric| {
        let a = a.abs();
        let root = a.sqrt().expect("a root");
        let (x, r) = (Rational::of(&a), Rational::of(&root));
        let unit = half_unit(root.scale());
        // (r - u)^2 <= a <= (r + u)^2
        let below = r.add(&unit.negate());
        let above = r.add(&unit);
        prop_assert!(
            below.numerator < BigInt::ZERO || below.multiply(&below).compare(&x) != Ordering::Greater,
            "{} {}",
            a,
            root
        );
        prop_assert!(above.multiply(&above).compare(&x) != Ordering::Less, "{} {}", a, root);
        Ok(())
    };
    TestRunner::new(config(3_000)).run(&finite(), check).expect("nearest");
}

#[test]
fn logarithms_and_exponentials_undo_each_other() {
    let strategy = (1i64..10_000_000, 0u16..7).prop_map(|(m, s)| Numeric::new(i128::from(m), s));
    let check = |a: Numeric| {
        let there = a.round(20).ln().expect("a logarithm");
        let back = there.exp().expect("an exponential");
        let error = back.subtract(&a).expect("a difference").abs();
        let bound = a.multiply(&Numeric::new(1, 15)).expect("a bound");
        prop_assert!(error <= bound, "{} {} {}", a, there, back);
        Ok(())
    };
    TestRunner::new(config(300)).run(&strategy, check).expect("undone");
}

#[test]
fn what_is_rounded_up_beyond_the_type_fits_no_column() {
    let digits = "9".repeat(131_072);
    let largest: Numeric = format!("{digits}.96").parse().expect("as many digits as there may be");
    for (precision, scale) in [(10, 1), (1000, 1), (1000, 0), (5, -3)] {
        let error = largest.fit(precision, scale).expect_err("it has too many digits");
        assert_eq!(
            (error.sqlstate, &*error.message),
            ("22003", "numeric field overflow"),
            "{precision}, {scale}"
        );
    }
}

/// 131072 digits before the point and 16383 behind it are the most; zeros before the first other
/// digit do not count.
#[test]
fn digits_are_counted_before_they_are_read() {
    let nines = |count: usize| "9".repeat(count);
    let most = nines(131_072);
    let fits = [
        (most.clone(), most.clone()),
        (format!("-{}{most}", "0".repeat(200_000)), format!("-{most}")),
        (format!("{most}.{}", nines(16_383)), format!("{most}.{}", nines(16_383))),
        (format!("{most}0e-1"), format!("{most}.0")),
        (format!("0.{}{most}e147455", "0".repeat(16_383)), most.clone()),
        ("1e131071".to_owned(), format!("1{}", "0".repeat(131_071))),
        (format!("0.{}1", "0".repeat(16_382)), format!("0.{}1", "0".repeat(16_382))),
        (format!("0.{}e200000", "0".repeat(100)), "0".to_owned()),
        (format!("{}7.5", "0".repeat(1 << 20)), "7.5".to_owned()),
    ];
    for (text, expected) in fits {
        let number: Numeric = text.parse().expect("it fits");
        assert!(number.to_string() == expected, "{} bytes", text.len());
    }
    let overflowing = [
        nines(131_073),
        format!("1{}", "0".repeat(131_072)),
        format!("-{}{}", "0".repeat(5), nines(131_073)),
        format!("{most}e1"),
        "1e131072".to_owned(),
        format!("0.{}", "0".repeat(16_384)),
        "1e-16384".to_owned(),
        // So many that nobody waited for their product.
        nines(30_000_000),
        format!("0.{}", nines(30_000_000)),
    ];
    for text in overflowing {
        let error = text.parse::<Numeric>().expect_err("it overflows");
        assert_eq!((error.sqlstate, &*error.message), ("22003", "value overflows numeric format"));
    }
    for text in ["9".repeat(200_000) + "x", "9".repeat(200_000) + ".1.", "9".repeat(200_000) + "e"] {
        assert_eq!(text.parse::<Numeric>().expect_err("it is no number").sqlstate, "22P02");
    }
}

/// Digits behind those that the scale shows are dropped, however many they are.
#[test]
fn the_binary_format_is_read_as_far_as_it_shows() {
    let binary = |groups: &[u16], weight: i16, sign: u16, scale: u16| {
        let head = [groups.len() as u16, weight as u16, sign, scale];
        let bytes: Vec<u8> = head.iter().chain(groups).flat_map(|word| word.to_be_bytes()).collect();
        Numeric::read_binary(&bytes)
    };
    let shown = |groups: &[u16], weight, sign, scale| {
        binary(groups, weight, sign, scale).expect("it is one").to_string()
    };
    assert_eq!(shown(&[1, 2345, 6789], 1, 0x4000, 2), "-12345.67");
    assert_eq!(shown(&[1, 2345, 6789], 1, 0, 0), "12345");
    assert_eq!(shown(&[9999], -3, 0, 5), "0.00000");
    assert_eq!(shown(&[9999; 65_535], -1, 0, 3), "0.999");
    assert_eq!(shown(&[1234; 65_535], 10, 0, 1), format!("{}.1", "1234".repeat(11)));
    let most = shown(&[9999; 65_535], 32_767, 0, 16_383);
    assert!(most == format!("{}.{}", "9".repeat(131_072), "9".repeat(16_383)), "{} bytes", most.len());
    assert_eq!(binary(&[1, 10_000], 9, 0, 0).expect_err("no digit").sqlstate, "22P03");
}
