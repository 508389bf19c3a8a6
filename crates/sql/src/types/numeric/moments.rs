//! Sums of values and of their squares, beyond what the type itself can hold.
//!
//! A variance may fit where the sum of the squares does not: squares have twice the digits, on both
//! sides of the point. So a sum is a number of the type as long as that holds it exactly, and an
//! integer with a scale from then on.
//!
//! ```text
//! 9e131071 + 1, ..., 9e131071 + 5     the sum has a digit too many, the squares twice as many; the variance is 2.5
//! ```

use num_bigint::BigInt;

use super::{Finite, MAX_SCALE, Numeric, big_power_of_ten};
use crate::error::SqlError;

/// A sum of finite numbers.
enum Sum {
    Narrow(Numeric),
    Wide { mantissa: BigInt, scale: u32 },
}

/// What to do with a term.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Add,
    Subtract,
}

impl Sum {
    fn parts(&self) -> (BigInt, u32) {
        match self {
            Sum::Narrow(value) => value.parts(),
            Sum::Wide { mantissa, scale } => (mantissa.clone(), *scale),
        }
    }

    fn add(&mut self, term: &Numeric, sign: Sign) {
        if let Sum::Narrow(value) = self
            && let Ok(sum) = if sign == Sign::Add { value.add(term) } else { value.subtract(term) }
        {
            *self = Sum::Narrow(sum);
            return;
        }
        let (mantissa, scale) = term.parts();
        self.add_wide(mantissa, scale, sign);
    }

    fn add_square(&mut self, of: &Numeric, sign: Sign) {
        let fits = of.scale() * 2 <= MAX_SCALE;
        if let Some(square) = fits.then(|| of.multiply(of).ok()).flatten() {
            return self.add(&square, sign);
        }
        let (mantissa, scale) = of.parts();
        self.add_wide(&mantissa * &mantissa, scale * 2, sign);
    }

    fn add_wide(&mut self, term: BigInt, scale: u32, sign: Sign) {
        let term = if sign == Sign::Add { term } else { -term };
        let (sum, scale) = add((self.parts().0, self.parts().1), (term, scale));
        *self = Sum::Wide { mantissa: sum, scale };
    }
}

fn add(a: (BigInt, u32), b: (BigInt, u32)) -> (BigInt, u32) {
    let scale = a.1.max(b.1);
    (a.0 * big_power_of_ten(scale - a.1) + b.0 * big_power_of_ten(scale - b.1), scale)
}

/// Count, sum and sum of squares of finite numbers.
pub(crate) struct Moments {
    count: i64,
    sum: Sum,
    squares: Sum,
}

impl Default for Moments {
    fn default() -> Moments {
        let nothing = || Sum::Narrow(Numeric::ZERO);
        Moments { count: 0, sum: nothing(), squares: nothing() }
    }
}

impl Moments {
    pub(crate) fn add(&mut self, value: &Numeric) {
        self.count += 1;
        self.sum.add(value, Sign::Add);
        self.squares.add_square(value, Sign::Add);
    }

    pub(crate) fn remove(&mut self, value: &Numeric) {
        self.count -= 1;
        self.sum.add(value, Sign::Subtract);
        self.squares.add_square(value, Sign::Subtract);
    }

    pub(crate) fn count(&self) -> i64 {
        self.count
    }

    /// The squared distances from the mean over `divisor`, with a quotient's scale. 22003 beyond
    /// the type.
    pub(crate) fn variance(&self, divisor: i64) -> Result<Numeric, SqlError> {
        let (sum, scale) = self.sum.parts();
        let (squares, squares_scale) = self.squares.parts();
        let square_of_sum = (-(&sum * &sum), scale * 2);
        let (numerator, scale) = add((squares * self.count, squares_scale), square_of_sum);
        if numerator.sign() != num_bigint::Sign::Plus {
            return Ok(Numeric::ZERO);
        }
        let count = Numeric::from(self.count);
        Numeric::beyond(numerator, scale).divide(&count.multiply(&Numeric::from(divisor))?)
    }
}

impl Numeric {
    /// Mantissa and scale of a finite number.
    fn parts(&self) -> (BigInt, u32) {
        match self.finite() {
            Some(finite @ (Finite::Small(..) | Finite::Big(..))) => (finite.mantissa(), finite.scale()),
            None => (BigInt::ZERO, 0),
        }
    }
}
