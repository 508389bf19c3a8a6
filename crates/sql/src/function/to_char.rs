//! `to_char`, `to_date`, `to_timestamp` and `to_number`: times and numbers by template.

mod number;
mod number_input;
mod number_template;
mod parse;
mod template;
mod time;

pub(super) use number::number_to_char;
pub(super) use number_input::to_number;
pub(super) use parse::{to_date, to_timestamp};
pub(super) use time::{format_timestamp, interval_to_char, timestamp_to_char};
