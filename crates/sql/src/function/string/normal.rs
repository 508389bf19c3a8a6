//! Unicode's normal forms: `normalize` and `is_normalized`.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::canonical_combining_class;

use super::{Computed, from_utf8, str_of};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::Datum;
use crate::types::bounds::{Meter, append, check_size};

/// Which of the forms.
#[derive(Clone, Copy)]
enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// The form that an argument names; without one it is NFC. 22023.
fn form(argument: Option<&Datum>) -> Result<Form, SqlError> {
    let Some(argument) = argument else { return Ok(Form::Nfc) };
    let name = str_of(argument)?;
    match name.to_ascii_uppercase().as_str() {
        "NFC" => Ok(Form::Nfc),
        "NFD" => Ok(Form::Nfd),
        "NFKC" => Ok(Form::Nfkc),
        "NFKD" => Ok(Form::Nfkd),
        _ => {
            let message = format!("invalid normalization form: {name}");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// About what a mark takes while it waits for the next character that is none: it is kept with its
/// class, sorted, and kept again to be composed.
const BYTES_OF_MARK: usize = 32;

/// Fails where marks follow each other that take more memory than there is: they are sorted
/// together, by somebody who knows no bounds. 53200.
fn check_marks(text: &str) -> Result<(), SqlError> {
    let mut meter = Meter::default();
    let (mut marks, mut most) = (0usize, 0);
    for character in text.chars() {
        meter.add(0)?;
        marks = if canonical_combining_class(character) == 0 { 0 } else { marks + 1 };
        most = marks.max(most);
    }
    check_size(most.saturating_mul(BYTES_OF_MARK))
}

fn collect(characters: impl Iterator<Item = char>) -> Computed {
    let mut out = Vec::new();
    let mut meter = Meter::default();
    for character in characters {
        meter.add(0)?;
        append(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut out)?;
    }
    from_utf8(out)
}

pub(super) fn normalize(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let text = str_of(&arguments[0])?;
    let form = form(arguments.get(1))?;
    if text.is_ascii() {
        return Ok(arguments[0].clone());
    }
    check_marks(text)?;
    match form {
        Form::Nfc => collect(text.nfc()),
        Form::Nfd => collect(text.nfd()),
        Form::Nfkc => collect(text.nfkc()),
        Form::Nfkd => collect(text.nfkd()),
    }
}

/// Whether a text is the same as these characters.
fn is_made_of(text: &str, characters: impl Iterator<Item = char>) -> Computed {
    let (mut own, mut meter) = (text.chars(), Meter::default());
    for character in characters {
        meter.add(0)?;
        if own.next() != Some(character) {
            return Ok(Datum::Bool(false));
        }
    }
    Ok(Datum::Bool(own.next().is_none()))
}

pub(super) fn is_normalized(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let text = str_of(&arguments[0])?;
    let form = form(arguments.get(1))?;
    if text.is_ascii() {
        return Ok(Datum::Bool(true));
    }
    check_marks(text)?;
    match form {
        Form::Nfc => is_made_of(text, text.nfc()),
        Form::Nfd => is_made_of(text, text.nfd()),
        Form::Nfkc => is_made_of(text, text.nfkc()),
        Form::Nfkd => is_made_of(text, text.nfkd()),
    }
}
