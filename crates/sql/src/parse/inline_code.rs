//! `DO [LANGUAGE name] 'text' [LANGUAGE name]`.

use sqlparser::ast::Ident;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Command, Parsed, take};
use super::routine::text;

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
