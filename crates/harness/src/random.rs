//! A small seeded random generator whose values never change between versions.
//!
//! The bookstore's rows are a pure function of (seed, table, row number), so the checker can
//! compute what a row was at load time without having kept it. That needs a generator whose
//! sequence is fixed for good; this is SplitMix64, whose every output is a bijective scrambling of
//! a counter.

/// A seeded generator: equal seeds give equal sequences, on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// A generator for one row of one stream (a table, a client): streams do not overlap in
    /// practice.
    pub fn stream(seed: u64, stream: u64, row: u64) -> Self {
        let s = scramble(seed ^ 0x6a09_e667_f3bc_c908);
        let s = scramble(s ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Random { state: scramble(s ^ row.wrapping_mul(0xd1b5_4a32_d192_ed03)) }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.state)
    }

    /// A number in `low..=high` (both ends included).
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        debug_assert!(low <= high);
        let span = (high - low) as u64 + 1;
        // Multiply-shift instead of a remainder: no division, and a bias below 2^-32 for the spans
        // used here.
        low + ((u128::from(self.next_u64()) * u128::from(span)) >> 64) as i64
    }

    /// Like [`Random::between`], for the integer type that most columns have.
    pub fn int(&mut self, low: i32, high: i32) -> i32 {
        self.between(i64::from(low), i64::from(high)) as i32
    }

    /// True with a probability of `percent` in a hundred.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.between(1, 100) <= i64::from(percent)
    }

    /// One element of a non-empty slice.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as i64 - 1) as usize]
    }

    /// A number in `1..=n`, not uniformly: TPC's NURand, which makes some numbers much more popular
    /// than others.
    ///
    /// The bit-or of a number below a power of two `a` and a uniform one favours numbers whose low
    /// bits are set; `a` is about an eighth of `n`, TPC-W's choice for its sizes.
    pub fn skewed(&mut self, n: i32) -> i32 {
        let n = i64::from(n.max(1));
        let a = (n as u64 / 8).next_power_of_two() as i64 - 1;
        let or = self.between(0, a) | self.between(1, n);
        (or % n + 1) as i32
    }

    /// Lower-case letters, between `low` and `high` of them, appended to `out`.
    pub fn letters(&mut self, low: i32, high: i32, out: &mut String) {
        let n = self.int(low, high);
        for _ in 0..n {
            out.push(char::from(b'a' + self.between(0, 25) as u8));
        }
    }

    /// Decimal digits, exactly `n` of them, appended to `out`.
    pub fn digits(&mut self, n: i32, out: &mut String) {
        for _ in 0..n {
            out.push(char::from(b'0' + self.between(0, 9) as u8));
        }
    }
}
