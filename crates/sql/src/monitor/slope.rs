//! What a byte adds to a delay.
//!
//! Found from attempts of one class under one protocol, by how much each differs from their
//! averages: so a time of long queues, or another class with larger requests, is not taken for the
//! price of a byte. Where a class's sizes differ little it stays at [`BYTE_US`].

use super::decayed::Decayed;

/// What a byte adds to the order's delay, before it is measured.
pub(super) const BYTE_US: f64 = 0.01;
/// How sure that is: as if so many attempts had been seen whose sizes scatter by so many bytes.
const SURE: f64 = 16.0 * 4096.0 * 4096.0;
/// The measured slope is believed up to this many times more or less.
const RANGE: f64 = 10.0;
/// Averages of so many attempts are good enough to look at deviations from them.
const KNOWN: f64 = 16.0;
/// So many attempts count.
const WINDOW: f64 = 256.0;

/// Averages, and sums of squares and products of the deviations from them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slope {
    bytes: Decayed,
    delay_us: Decayed,
    squares: f64,
    products: f64,
}

impl Slope {
    pub(super) fn fade(&mut self, fading: f64) {
        self.bytes.fade(fading);
        self.delay_us.fade(fading);
        self.squares *= fading;
        self.products *= fading;
    }

    /// Adds an attempt.
    pub(super) fn note(&mut self, bytes: f64, delay_us: f64) {
        self.squares *= 1.0 - 1.0 / WINDOW;
        self.products *= 1.0 - 1.0 / WINDOW;
        // Before that there are no averages to speak of.
        if self.bytes.weight() >= KNOWN {
            let deviation = bytes - self.bytes.mean();
            self.squares += deviation * deviation;
            // One that stood still for long is one of many.
            let delay_us = delay_us.min(20.0 * self.delay_us.mean());
            self.products += deviation * (delay_us - self.delay_us.mean());
        }
        self.bytes.add(bytes, WINDOW);
        self.delay_us.add(delay_us, WINDOW);
    }

    pub(super) fn byte_us(&self) -> f64 {
        let slope = (self.products + SURE * BYTE_US) / (self.squares + SURE);
        slope.clamp(BYTE_US / RANGE, BYTE_US * RANGE)
    }
}
