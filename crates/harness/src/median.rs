//! Middle values: a machine that is busy with something else for a moment moves a mean, and not these.

/// The middle one, or the mean of the middle two; not a number if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(values[last / 2], values[last - last / 2])
}

/// The median of `above[n] / below[n]`: what is compared took turns, and the machine is more or less the same for both in one round. Rounds in which the one below did nothing
/// do not count; not a number if none is left.
pub fn median_ratio(above: &[f64], below: &[f64]) -> f64 {
    let both = above.iter().zip(below).filter(|(_, below)| **below > 0.0);
    median(&both.map(|(above, below)| above / below).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        assert!((median_ratio(&[2.0, 9.0, 3.0], &[1.0, 1.0, 1.0]) - 3.0).abs() < 1e-9);
        assert!((median_ratio(&[2.0, 3.0, 7.0], &[1.0, 1.0, 0.0]) - 2.5).abs() < 1e-9);
        assert!(median_ratio(&[2.0], &[0.0]).is_nan());
    }
}
