//! `DO [LANGUAGE name] 'text' [LANGUAGE name]`, and types by themselves.

use sqlparser::ast::{DataType, Ident};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Command, Parsed, take};
use super::dialect::CognateDialect;
use super::error::Source;
use super::operator;
use super::routine::text;
use crate::error::Result;

/// The statement, if it is one of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<Command>> {
    if !take(parser, "DO") {
        return Ok(None);
    }
    let (mut language, mut code) = (None, None);
    loop {
        let token = parser.peek_token();
        if take(parser, "LANGUAGE") {
            let quoted = matches!(parser.peek_token_ref().token, Token::SingleQuotedString(_));
            let name =
                if quoted { Ident::with_quote('"', text(parser)?) } else { parser.parse_identifier()? };
            if language.replace(name).is_some() {
                return parser.expected("one LANGUAGE", token);
            }
        } else if code.is_some() || matches!(token.token, Token::EOF | Token::SemiColon) {
            break;
        } else {
            code = Some(text(parser)?);
        }
    }
    Ok(Some(Command::Do { language, code }))
}

/// The type that a text names.
pub(crate) fn data_type(text: &str) -> Result<DataType> {
    let places = Source::new(text);
    let dialect = CognateDialect::default();
    let tokens =
        operator::space(text).tokenize(text, &dialect).map_err(|error| places.tokenizer_error(&error))?;
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
    let data_type = parser.parse_data_type().map_err(|error| places.parser_error(&error))?;
    match parser.peek_token_ref() {
        token if token.token == Token::EOF => Ok(data_type),
        token => Err(places.near(token.span.start)),
    }
}
