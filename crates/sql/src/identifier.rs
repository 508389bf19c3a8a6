//! Identifiers as they are stored, and looked up: folded and cut. Whoever reads names meets here,
//! from the parser's rewriting to the catalog.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Word;

/// Longest identifier in bytes; longer ones are cut.
pub(crate) const MAX_NAME: usize = 63;

/// An identifier as it is stored, and looked up: without quotes its ASCII letters in lower case, as
/// in PostgreSQL, and cut to [`MAX_NAME`] bytes.
pub(crate) fn fold(ident: &Ident) -> String {
    fold_text(&ident.value, ident.quote_style.is_some())
}

/// The same of a word that the parser has not seen yet.
pub(crate) fn fold_word(word: &Word) -> String {
    fold_text(&word.value, word.quote_style.is_some())
}

/// The same of a text: what was in quotes, or stood without them.
pub(crate) fn fold_text(text: &str, is_quoted: bool) -> String {
    let mut name = if is_quoted { text.to_owned() } else { text.to_ascii_lowercase() };
    cut(&mut name, MAX_NAME);
    name
}

/// Cuts a text to at most `limit` bytes, at a character boundary.
pub(crate) fn cut(name: &mut String, limit: usize) {
    if name.len() > limit {
        let end = (0..=limit).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        name.truncate(end);
    }
}
