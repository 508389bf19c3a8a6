//! Progress bars on standard error; silent when it is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A bar of `total` steps, such as rows to load.
pub fn steps(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    bar.set_style(style("{msg:32} [{bar:40}] {human_pos}/{human_len} {eta}"));
    bar.set_message(what.to_owned());
    bar
}

/// A bar that fills within `seconds`, such as a measured window; advance it once per tenth of a
/// second.
pub fn seconds(what: &str, seconds: f64) -> ProgressBar {
    let bar = ProgressBar::new((seconds * 10.0).ceil() as u64);
    bar.set_style(style("{msg:32} [{bar:40}] {elapsed}"));
    bar.set_message(what.to_owned());
    bar
}

/// A spinner for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(style("{msg} {spinner} {elapsed}"));
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
