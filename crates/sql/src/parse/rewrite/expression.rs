//! `ALTER TABLE t ALTER [COLUMN] a DROP EXPRESSION [IF EXISTS]`: the parser knows nothing of the
//! kind, so it is given a default whose name no user can write.

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, is, make};

const DROPPED: &str = "\u{1}expression";
const DROPPED_IF_THERE: &str = "\u{1}expression if it is there";

/// Whether a default says that a column is generated no more, and then, whether that is no error
/// for one that is not generated.
pub(crate) fn dropped_expression(default: &ast::Expr) -> Option<bool> {
    let ast::Expr::Identifier(name) = default else { return None };
    match name.value.as_str() {
        DROPPED => Some(false),
        DROPPED_IF_THERE => Some(true),
        _ => None,
    }
}

impl Pass<'_> {
    /// A column of that name can be dropped, too.
    pub(super) fn drops_expression(&self) -> bool {
        let before_name = self.out.len().checked_sub(2).and_then(|at| self.out.get(at));
        let follows_column = is(before_name, "ALTER") || is(before_name, "COLUMN");
        self.first == "ALTER" && self.is(1, "EXPRESSION") && follows_column
    }

    pub(super) fn drop_expression(&mut self, span: Span) {
        let if_there = self.is(2, "IF") && self.is(3, "EXISTS");
        let name = if if_there { DROPPED_IF_THERE } else { DROPPED };
        let marked = Word { value: name.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.extend([make("SET", span), make("DEFAULT", span)]);
        self.out.push(TokenWithSpan { token: Token::Word(marked), span });
        self.at += if if_there { 4 } else { 2 };
    }
}
