//! Operators before their operand.
//!
//! Those that the parser's tree has no place for are none of PostgreSQL's for any type that there
//! is here. They are calls by names that no function has, so that the types of their operands are
//! told when they are refused:
//!
//! ```text
//! @-1      becomes   "\u{1}prefix @-"(1)
//! ```

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    UnaryOperator,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::dialect::is_word;

/// Begins the name of such a call; the operator follows.
const MARK: &str = "\u{1}prefix ";

/// The operator that a call of this name stands for; none for any other name.
pub(crate) fn operator_of_call(name: &str) -> Option<&str> {
    name.strip_prefix(MARK)
}

/// What a token is before an operand.
pub(super) fn prefix_operator(token: &Token) -> Option<UnaryOperator> {
    Some(match token {
        Token::Minus => UnaryOperator::Minus,
        Token::Plus => UnaryOperator::Plus,
        Token::Tilde => UnaryOperator::BitwiseNot,
        Token::AtSign => UnaryOperator::PGAbs,
        Token::PGSquareRoot => UnaryOperator::PGSquareRoot,
        Token::PGCubeRoot => UnaryOperator::PGCubeRoot,
        _ => return None,
    })
}

/// How far ahead the operator of `OPERATOR(pg_catalog.-)` is, if that comes next, and how many
/// tokens all of it has.
pub(super) fn named_operator(parser: &Parser<'_>) -> Option<(usize, usize)> {
    let is = |ahead: usize, token: &Token| parser.peek_nth_token_ref(ahead).token == *token;
    if !is_word(parser, 0, "OPERATOR") || !is(1, &Token::LParen) {
        return None;
    }
    let at = if is_word(parser, 2, "pg_catalog") && is(3, &Token::Period) { 4 } else { 2 };
    is(at + 1, &Token::RParen).then_some((at, at + 2))
}

/// An operator that the tree has no place for, if one comes next, and its operand, which is parsed
/// with this precedence.
pub(super) fn unknown_operator(parser: &mut Parser<'_>, precedence: u8) -> Option<Result<Expr, ParserError>> {
    let next = parser.peek_token_ref();
    let Token::CustomBinaryOperator(operator) = &next.token else { return None };
    let name = Ident::with_span(next.span, format!("{MARK}{operator}"));
    parser.advance_token();
    let operand = parser.parse_subexpr(precedence);
    Some(operand.map(|operand| {
        let args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(operand))];
        let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] };
        call(name, FunctionArguments::List(list))
    }))
}

/// A function that is written as one word, which the crate takes for a column.
pub(super) fn function_without_parentheses(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    Ok(call(parser.parse_identifier()?, FunctionArguments::None))
}

/// Expressions of XML, in the parentheses of which words stand. There are none of them here; the
/// crate would take some for calls.
const OF_XML: [&str; 8] =
    ["XMLCONCAT", "XMLELEMENT", "XMLEXISTS", "XMLFOREST", "XMLPARSE", "XMLPI", "XMLROOT", "XMLSERIALIZE"];

/// Whether such an expression comes next: a name behind a period is a function's.
pub(super) fn is_xml(parser: &Parser<'_>) -> bool {
    parser.peek_nth_token_ref(1).token == Token::LParen
        && parser.get_current_token().token != Token::Period
        && OF_XML.iter().any(|known| is_word(parser, 0, known))
}

/// Refuses a list of arguments behind a word that is a value by itself. A precision, which is one
/// number, may stand behind those of the time.
pub(super) fn list_behind_value(parser: &Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let is = |ahead: usize, token: &Token| parser.peek_nth_token_ref(ahead).token == *token;
    let Token::Word(word) = &parser.peek_token_ref().token else { return None };
    // Behind a period all words are names.
    if !is(1, &Token::LParen) || parser.get_current_token().token == Token::Period {
        return None;
    }
    let is_precision = || {
        matches!(&parser.peek_nth_token_ref(2).token,
            Token::Number(digits, _) if digits.parse::<i32>().is_ok())
    };
    let refused = match word.keyword {
        Keyword::CURRENT_CATALOG
        | Keyword::CURRENT_DATE
        | Keyword::CURRENT_ROLE
        | Keyword::CURRENT_USER
        | Keyword::SESSION_USER
        | Keyword::USER => 1,
        Keyword::CURRENT_TIME | Keyword::CURRENT_TIMESTAMP | Keyword::LOCALTIME | Keyword::LOCALTIMESTAMP => {
            match is_precision() {
                false => 2,
                true if !is(3, &Token::RParen) => 3,
                true => return None,
            }
        }
        _ => return None,
    };
    Some(parser.expected_ref("an expression", parser.peek_nth_token_ref(refused)))
}

fn call(name: Ident, args: FunctionArguments) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![name]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args,
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}
