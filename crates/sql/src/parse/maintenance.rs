//! VACUUM, ANALYZE, CLUSTER, REINDEX, CHECKPOINT: what they name, and their options.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use sqlparser::parser::{IsOptional, Parser};
use sqlparser::tokenizer::Token;

use super::command::{Command, Parsed, take};
use crate::identifier::fold;

/// Words before the names.
const WORDS: [&str; 11] = [
    "FULL",
    "FREEZE",
    "VERBOSE",
    "ANALYZE",
    "ANALYSE",
    "CONCURRENTLY",
    "TABLE",
    "INDEX",
    "SCHEMA",
    "DATABASE",
    "SYSTEM",
];
/// Those that say what kind of object REINDEX names.
const KINDS: [&str; 5] = ["TABLE", "INDEX", "SCHEMA", "DATABASE", "SYSTEM"];

/// What follows the command's word.
pub(super) fn parse(parser: &mut Parser<'_>, command: &'static str) -> Parsed<Command> {
    let mut options = vec![];
    if parser.consume_token(&Token::LParen) {
        options = parse_options(parser)?;
    }
    let mut kind = None;
    loop {
        // Elsewhere they are names.
        let names_kind = command == "REINDEX" && kind.is_none();
        let may_come = |word: &str| names_kind || !KINDS.contains(&word);
        let Some(word) = WORDS.into_iter().find(|word| may_come(word) && take(parser, word)) else { break };
        if KINDS.contains(&word) {
            kind = Some(word);
        } else {
            options.push((word.to_ascii_lowercase(), None));
        }
    }
    if command == "REINDEX" && kind.is_none() {
        return parser.expected_ref("what to reindex", parser.peek_token_ref());
    }
    let (mut relations, mut index) = (vec![], None);
    if matches!(parser.peek_token_ref().token, Token::Word(_)) {
        match command {
            "CLUSTER" => {
                let (name, by) = clustered(parser)?;
                relations.push((name, vec![]));
                index = by;
            }
            "REINDEX" => relations.push((parser.parse_object_name(false)?, vec![])),
            _ => {
                relations = parser.parse_comma_separated(|parser| {
                    let name = parser.parse_object_name(false)?;
                    let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
                    Ok((name, columns))
                })?;
            }
        }
    }
    Ok(Command::Maintenance { command, relations, index, kind, options })
}

/// The table that CLUSTER names, and the index: behind it, or before it in the older spelling.
fn clustered(parser: &mut Parser<'_>) -> Parsed<(ObjectName, Option<Ident>)> {
    let name = parser.parse_object_name(false)?;
    if let [ObjectNamePart::Identifier(index)] = name.0.as_slice()
        && take(parser, "ON")
    {
        let index = index.clone();
        return Ok((parser.parse_object_name(false)?, Some(index)));
    }
    let index = take(parser, "USING").then(|| parser.parse_identifier()).transpose()?;
    Ok((name, index))
}

/// Options behind a parenthesis, each with a value or without. Which of them a command has, and
/// which values, is asked when it runs.
fn parse_options(parser: &mut Parser<'_>) -> Parsed<Vec<(String, Option<String>)>> {
    let mut options = vec![];
    loop {
        let name = fold(&parser.parse_identifier()?);
        let mut value: Option<String> = None;
        while !matches!(parser.peek_token_ref().token, Token::Comma | Token::RParen | Token::EOF) {
            // A number may have its sign before it.
            let token = parser.next_token().token.to_string();
            value.get_or_insert_default().push_str(token.trim_matches('\''));
        }
        options.push((name, value));
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(options)
}
