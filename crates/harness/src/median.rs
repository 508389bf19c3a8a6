//! Middle values: a machine that is busy with something else for a moment moves a mean, and not
//! these.

/// The middle one, or the mean of the middle two; not a number if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(values[last / 2], values[last - last / 2])
}

/// The median of `above[n] / below[n]`: what is compared took turns, and the machine is more or
/// less the same for both in one round. Rounds in which the one below did nothing do not count; not
/// a number if none is left.
pub fn median_ratio(above: &[f64], below: &[f64]) -> f64 {
    median(&ratios(above, below))
}

fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    let both = above.iter().zip(below).filter(|(_, below)| **below > 0.0);
    both.map(|(above, below)| above / below).collect()
}

/// The standard error of the mean of such ratios: how far the rounds can be trusted; not a number
/// if there are fewer than two.
pub fn ratio_error(above: &[f64], below: &[f64]) -> f64 {
    let ratios = ratios(above, below);
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>();
    if ratios.len() < 2 { f64::NAN } else { (squares / (count - 1.0) / count).sqrt() }
}

/// The standard error of the mean of values; not a number if there are fewer than two.
pub fn mean_error(values: &[f64]) -> f64 {
    ratio_error(values, &vec![1.0; values.len()])
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

    #[test]
    fn a_standard_error_shrinks_with_the_rounds() {
        assert!((ratio_error(&[1.0, 2.0, 3.0], &[1.0, 1.0, 1.0]) - (1.0f64 / 3.0).sqrt()).abs() < 1e-9);
        assert!((ratio_error(&[2.0, 4.0, 9.0], &[1.0, 2.0, 0.0])).abs() < 1e-9);
        assert!(ratio_error(&[2.0], &[1.0]).is_nan());
    }
}
