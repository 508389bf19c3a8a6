//! Averages that forget.
//!
//! A sample's weight halves each [`HALF_LIFE_US`], and falls with each further sample, so that an
//! average is about the last [`WINDOW`] ones: a class of a thousand transactions a second shows a
//! change within a fraction of a second, one of ten a second within a few. The *weight* of an
//! average says how much it is worth; the mean stays when the weight fades.
//!
//! ```text
//! 200 samples of 10, then 2 s nothing    mean 10, weight 100
//! one sample of 111                      mean 11, weight 101
//! ```

/// In this time a sample loses half of its weight.
const HALF_LIFE_US: f64 = 2_000_000.0;
/// So many samples weigh at most.
const WINDOW: f64 = 256.0;
/// From this weight on an average knows what an outlier is.
const SURE: f64 = 16.0;
/// A sample counts as so many times the mean at most: a node that stood still for ten seconds says
/// nothing of what a statement costs.
const OUTLIER: f64 = 10.0;
/// What a faded average keeps, so that two of them can still be weighed against each other.
const FAINT: f64 = 1e-6;

/// What is left of a weight after a time. Time that goes back stands still.
pub(super) fn fading(elapsed_us: i64) -> f64 {
    (-(elapsed_us.max(0) as f64) / HALF_LIFE_US).exp2()
}

/// A weighted average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decayed {
    weight: f64,
    mean: f64,
}

impl Decayed {
    /// Time has passed; see [`fading`].
    pub(super) fn fade(&mut self, fading: f64) {
        if self.weight > 0.0 {
            self.weight = (self.weight * fading).max(FAINT);
        }
    }

    /// Adds a sample.
    pub(super) fn note(&mut self, value: f64) {
        let value = if self.weight >= SURE { value.min(OUTLIER * (self.mean + 1.0)) } else { value };
        self.add(value, WINDOW);
    }

    /// Adds a sample of which so many weigh at most, however far out it is.
    pub(super) fn add(&mut self, value: f64, window: f64) {
        self.weight = self.weight.min(window - 1.0) + 1.0;
        self.mean += (value - self.mean) / self.weight;
    }

    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// The mean together with another guess of a weight.
    pub(super) fn or(&self, guess: f64, weight: f64) -> f64 {
        (self.weight * self.mean + weight * guess) / (self.weight + weight)
    }
}
