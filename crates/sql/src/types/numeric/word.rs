//! Numbers of few digits in registers: most of arithmetic with amounts of money, and none of what
//! makes it long.
//!
//! Whatever a word cannot hold has no result here and is computed the general way.

use super::{MAX_SCALE, Numeric, Repr};

/// A mantissa that fits a word, and its scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) mantissa: i64,
    pub(crate) scale: u16,
}

/// The operations whose results are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// The sum.
    Add,
    /// The difference.
    Subtract,
    /// The product.
    Multiply,
}

impl Word {
    /// The result with PostgreSQL's scale; none if it does not fit.
    #[inline]
    pub(crate) fn compute(self, arithmetic: Arithmetic, other: Word) -> Option<Word> {
        if arithmetic == Arithmetic::Multiply {
            let (mantissa, scale) = (self.mantissa.checked_mul(other.mantissa)?, self.scale + other.scale);
            return (u32::from(scale) <= MAX_SCALE).then_some(Word { mantissa, scale });
        }
        let scale = self.scale.max(other.scale);
        let (a, b) = (self.mantissa_at(scale)?, other.mantissa_at(scale)?);
        let mantissa = match arithmetic {
            Arithmetic::Add => a.checked_add(b)?,
            _ => a.checked_sub(b)?,
        };
        Some(Word { mantissa, scale })
    }

    /// The mantissa at a scale that is no smaller.
    #[inline]
    fn mantissa_at(self, scale: u16) -> Option<i64> {
        if scale == self.scale {
            return Some(self.mantissa);
        }
        self.mantissa.checked_mul(10i64.checked_pow(u32::from(scale - self.scale))?)
    }
}

impl From<Word> for Numeric {
    #[inline]
    fn from(word: Word) -> Numeric {
        Numeric(Repr::Small { high: word.mantissa >> 63, low: word.mantissa as u64, scale: word.scale })
    }
}

impl Numeric {
    /// The number in a word, if one holds it.
    #[inline]
    pub(crate) fn word(&self) -> Option<Word> {
        match self.0 {
            Repr::Small { high, low, scale } if high == low as i64 >> 63 => {
                Some(Word { mantissa: low as i64, scale })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a word gives is what the general way gives, digits and all; near its ends it gives
    /// nothing.
    #[test]
    fn words_compute_as_numbers_do() {
        let mantissas = [0, 1, -1, 7, -99, 12345, i64::MAX, i64::MIN, i64::MAX / 10, 1 << 31];
        let words: Vec<Word> = (mantissas.into_iter())
            .flat_map(|mantissa| [0, 2, 3, 19, MAX_SCALE as u16].map(|scale| Word { mantissa, scale }))
            .collect();
        let mut given = 0;
        for a in &words {
            for b in &words {
                let (x, y) = (Numeric::from(*a), Numeric::from(*b));
                for arithmetic in [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply] {
                    let Some(result) = a.compute(arithmetic, *b) else { continue };
                    let wanted = match arithmetic {
                        Arithmetic::Add => x.add(&y),
                        Arithmetic::Subtract => x.subtract(&y),
                        Arithmetic::Multiply => x.multiply(&y),
                    };
                    assert_eq!(
                        Numeric::from(result).to_string(),
                        wanted.expect("a small number").to_string(),
                        "{a:?} {arithmetic:?} {b:?}"
                    );
                    given += 1;
                }
            }
        }
        assert!(given > 1000);
        assert!(Numeric::new(i128::from(i64::MAX) + 1, 0).word().is_none());
        assert_eq!(Numeric::new(-5, 3).word().map(|word| (word.mantissa, word.scale)), Some((-5, 3)));
    }
}
