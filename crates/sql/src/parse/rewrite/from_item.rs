//! Items of FROM that the parser has no place for.
//!
//! ```text
//! FROM current_date d, least(a, b)    FROM ROWS FROM (current_date) d, ROWS FROM (least(a, b))
//! FROM f(1) AS (a int)                FROM f(1) AS f (a int)
//! ```
//!
//! One walk over the tokens knows in which clause of which query each of them is: behind FROM of
//! `extract(year FROM current_date)` no item begins.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::{ROWS_FROM, dotted, is, word};

/// Statements with queries in them. In others FROM means something else.
#[rustfmt::skip]
const WITH_QUERIES: [&str; 12] = [
    "SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "EXPLAIN", "CREATE", "DECLARE", "PREPARE",
    "COPY", "VALUES",
];

/// Values that are written as one word.
#[rustfmt::skip]
const WORDS: [&str; 11] = [
    "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_CATALOG",
    "CURRENT_ROLE", "CURRENT_SCHEMA", "CURRENT_USER", "SESSION_USER", "USER",
];

/// Forms that look like calls of functions and are none.
#[rustfmt::skip]
const FORMS: [&str; 18] = [
    "COALESCE", "GREATEST", "LEAST", "NULLIF", "CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM",
    "XMLCONCAT", "XMLELEMENT", "XMLEXISTS", "XMLFOREST", "XMLPARSE", "XMLPI", "XMLROOT", "XMLSERIALIZE",
];

/// Words behind which a query has no items of FROM any more.
#[rustfmt::skip]
const BEHIND_FROM: [&str; 13] = [
    "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH", "FOR", "UNION",
    "INTERSECT", "EXCEPT", "RETURNING",
];

fn is_among(token: Option<&TokenWithSpan>, words: &[&str]) -> bool {
    let found = word(token);
    !found.is_empty() && words.iter().any(|known| found.eq_ignore_ascii_case(known))
}

fn opens(token: Option<&TokenWithSpan>) -> bool {
    token.is_some_and(|token| token.token == Token::LParen)
}

/// Whether the value that is one word begins these tokens. One of these words is the name of a
/// function, too; the others have no list of arguments, and are refused with one where they are
/// parsed.
pub(super) fn begins_value(tokens: &[TokenWithSpan]) -> bool {
    is_among(tokens.first(), &WORDS) && !(is(tokens.first(), "CURRENT_SCHEMA") && opens(tokens.get(1)))
}

/// What the parentheses around are of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Around {
    #[default]
    Nothing,
    /// A value in FROM, which begins at this place.
    Value(usize),
    /// The arguments of a call in FROM; the place of the function's name.
    Call(usize),
}

/// Which clause comes last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Clause {
    #[default]
    Other,
    /// One that FROM may come behind.
    List,
    From,
}

/// What is put before a token.
enum Put {
    /// ROWS FROM and a parenthesis.
    Open,
    Close,
    /// The name at this place.
    Name(usize),
}

/// Finds what is to be put where.
#[derive(Default)]
struct Walk {
    /// What each open parenthesis is of, and the clause before it.
    open: Vec<(Around, Clause)>,
    clause: Clause,
    /// What the next parenthesis is of.
    next: Around,
    /// Whether an item of FROM may begin.
    at_item: bool,
    puts: Vec<(usize, Put)>,
}

/// The same tokens where there are no such items.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_known = |token: &TokenWithSpan| is_among(Some(token), &WORDS) || is_among(Some(token), &FORMS);
    let may_be = |pair: &[TokenWithSpan]| match &pair[0].token {
        Token::Comma | Token::LParen => is_known(&pair[1]),
        Token::Word(word) => match word.keyword {
            Keyword::FROM | Keyword::JOIN | Keyword::LATERAL => is_known(&pair[1]),
            Keyword::AS => opens(Some(&pair[1])),
            _ => false,
        },
        _ => false,
    };
    let begin = tokens.iter().find(|token| token.token != Token::LParen);
    if !is_among(begin, &WITH_QUERIES) || !tokens.windows(2).any(may_be) {
        return tokens;
    }
    let mut walk = Walk::default();
    let mut at = 0;
    while at < tokens.len() {
        at += walk.step(&tokens, at);
    }
    if walk.puts.is_empty() { tokens } else { put(tokens, &walk.puts) }
}

impl Walk {
    /// Looks at the tokens from a place on; how many of them are done.
    fn step(&mut self, tokens: &[TokenWithSpan], at: usize) -> usize {
        let at_item = std::mem::take(&mut self.at_item);
        match &tokens[at].token {
            Token::LParen => {
                // Joins may be in parentheses.
                let is_join = at_item && self.next == Around::Nothing;
                self.open.push((std::mem::take(&mut self.next), self.clause));
                (self.clause, self.at_item) = (if is_join { Clause::From } else { Clause::Other }, is_join);
            }
            Token::RParen => self.close(tokens, at),
            Token::Comma => self.at_item = self.clause == Clause::From,
            // A query, and no join, is in the parentheses.
            Token::Word(_) if at_item && is_among(tokens.get(at), &["VALUES", "WITH", "TABLE"]) => {
                self.clause = Clause::Other;
            }
            Token::Word(_) if at_item && !is(tokens.get(at), "SELECT") => return self.item(tokens, at),
            Token::Word(_) => self.word(tokens, at),
            _ => {}
        }
        1
    }

    fn close(&mut self, tokens: &[TokenWithSpan], at: usize) {
        let (around, clause) = self.open.pop().unwrap_or_default();
        self.clause = clause;
        match around {
            Around::Nothing => {}
            Around::Value(name) => self.end_value(tokens, at, name),
            Around::Call(name) => self.name_columns(tokens, at, name),
        }
    }

    /// A value ends with the token at this place.
    fn end_value(&mut self, tokens: &[TokenWithSpan], at: usize, name: usize) {
        self.puts.push((at + 1, Put::Close));
        self.name_columns(tokens, at, name);
    }

    /// A list of columns behind the item that ends at this place gets the item's name, if it says
    /// their types.
    fn name_columns(&mut self, tokens: &[TokenWithSpan], at: usize, name: usize) {
        let behind_column = tokens.get(at + 4).map(|token| &token.token);
        let has_types = matches!(behind_column, Some(Token::Word(_)));
        if is(tokens.get(at + 1), "AS") && opens(tokens.get(at + 2)) && has_types {
            self.puts.push((at + 2, Put::Name(name)));
        }
    }

    /// An item of FROM, up to the parentheses behind its name.
    fn item(&mut self, tokens: &[TokenWithSpan], at: usize) -> usize {
        let rest = &tokens[at..];
        if is_among(rest.first(), &["LATERAL", "ONLY"]) {
            self.at_item = true;
            return 1;
        }
        if is(rest.first(), "ROWS") && is(rest.get(1), "FROM") {
            return 2;
        }
        let has_list = opens(rest.get(1));
        if begins_value(rest) || (has_list && is_among(rest.first(), &FORMS)) {
            self.puts.push((at, Put::Open));
            match has_list {
                true => self.next = Around::Value(at),
                false => self.end_value(tokens, at, at),
            }
            return 1;
        }
        let (_, length) = dotted(rest);
        if length > 0 && opens(rest.get(length)) {
            self.next = Around::Call(at + length - 1);
        }
        length.max(1)
    }

    fn word(&mut self, tokens: &[TokenWithSpan], at: usize) {
        let token = tokens.get(at);
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        if before.is_some_and(|before| before.token == Token::Period) {
            return;
        }
        if is_among(token, &["SELECT", "UPDATE"]) {
            self.clause = Clause::List;
        } else if is(token, "FROM") && self.clause == Clause::List && !is(before, "DISTINCT") {
            (self.clause, self.at_item) = (Clause::From, true);
        } else if is(token, "JOIN") {
            self.at_item = self.clause == Clause::From;
        } else if is_among(token, &BEHIND_FROM) {
            self.clause = Clause::Other;
        }
    }
}

fn put(tokens: Vec<TokenWithSpan>, puts: &[(usize, Put)]) -> Vec<TokenWithSpan> {
    let mut out = Vec::with_capacity(tokens.len() + 2 * puts.len());
    let mut puts = puts.iter().peekable();
    for place in 0..=tokens.len() {
        while let Some((_, put)) = puts.next_if(|(at, _)| *at == place) {
            let near = tokens[place.min(tokens.len() - 1)].span;
            let make = |token: Token| TokenWithSpan { token, span: near };
            match put {
                Put::Open => {
                    let value = ROWS_FROM.to_owned();
                    let mark = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
                    out.extend([Token::Word(mark), Token::LParen].map(make));
                }
                Put::Close => out.push(make(Token::RParen)),
                Put::Name(at) => out.push(tokens[*at].clone()),
            }
        }
        out.extend(tokens.get(place).cloned());
    }
    out
}
