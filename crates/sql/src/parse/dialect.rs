//! PostgreSQL's dialect with what the parser crate gets wrong or lacks in expressions.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use sqlparser::ast::{
    BinaryOperator, CastKind, ColumnOption, DataType, DescribeAlias, Expr, KeyOrIndexDisplay,
    NullsDistinctOption, Statement, TypedString, UnaryOperator, UniqueConstraint,
};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::grouping_sets::grouping_sets;
use super::in_parentheses::{Queries, is_quantified, next_place, query_in_parentheses};
use super::interval::interval_literal;
use super::prefix::{
    function_without_parentheses, is_xml, list_behind_value, named_operator, prefix_operator,
    unknown_operator,
};
use super::rewrite::words;
use crate::error::SqlError;
use crate::function::Interrupt;

/// Binds tighter than `^` and AT TIME ZONE, looser than `[]` and `::`.
const UNARY_SIGN: u8 = 125;

/// As tight as IS: what is parsed with it ends before `IS`, `NOT NULL`, AND and OR.
pub(super) const BELOW_IS: u8 = 40;

/// Passes on what PostgreSQL's dialect answers.
macro_rules! delegate {
    ($($name:ident),*) => { $(fn $name(&self) -> bool { self.postgres.$name() })* };
}

/// Expressions and queries that may be begun for each token. The parser tries some constructs one
/// way and then another; nested, that doubles with every level. What people write needs two or
/// three: each expression counts once where it is asked for and once where it begins.
const ATTEMPTS_A_TOKEN: usize = 8;
/// And as many for any text, however short.
const ATTEMPTS_ANYWAY: usize = 10_000;

/// Deepest statement in a statement.
const STATEMENTS_NESTED: usize = 16;
/// Stack left before a statement is parsed on a fresh one, and the size of that.
const RED_ZONE: usize = 512 * 1024;
const FRESH_STACK: usize = 4 * 1024 * 1024;

/// The dialect: PostgreSQL's, with hooks.
#[derive(Debug, Default)]
pub(super) struct CognateDialect {
    postgres: PostgreSqlDialect,
    /// Expressions and queries that may still be begun; none when there is no limit.
    attempts: Option<Cell<usize>>,
    /// Statements that are being parsed, one in the other.
    statements: Cell<usize>,
    /// The crate was called from the hook that it is about to call.
    asks_again: Cell<bool>,
    /// The same of the hook for what is in the brackets of ANY.
    reads_operand: Cell<bool>,
    /// Which parentheses hold queries.
    queries: Queries,
    interruption: Interruption,
}

/// Asked whether to go on each time that so many expressions and queries were begun.
const ATTEMPTS_UNASKED: usize = 64;

/// What may stop the parser from outside.
#[derive(Default)]
struct Interruption {
    interrupt: Option<Arc<dyn Interrupt + Send + Sync>>,
    /// Why it was stopped.
    error: RefCell<Option<SqlError>>,
}

impl fmt::Debug for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruption").field("error", &self.error).finish_non_exhaustive()
    }
}

impl CognateDialect {
    /// For these tokens to be parsed, from the first on.
    pub(super) fn for_tokens(tokens: &[TokenWithSpan]) -> CognateDialect {
        let attempts = Some(Cell::new(tokens.len() * ATTEMPTS_A_TOKEN + ATTEMPTS_ANYWAY));
        let queries = Queries::of(tokens.iter().map(|token| &token.token));
        CognateDialect { attempts, queries, ..CognateDialect::default() }
    }

    /// To be stopped by this.
    pub(super) fn interrupted_by(
        mut self,
        interrupt: Option<Arc<dyn Interrupt + Send + Sync>>,
    ) -> CognateDialect {
        self.interruption.interrupt = interrupt;
        self
    }

    /// Why it was stopped, if it was.
    pub(super) fn interrupted(&self) -> Option<SqlError> {
        self.interruption.error.take()
    }

    /// One more expression or query is begun. False when that was one too many.
    fn attempt(&self) -> bool {
        if let Some(attempts) = &self.attempts {
            let left = attempts.get().saturating_sub(1);
            attempts.set(left);
            if let (0, Some(interrupt)) = (left % ATTEMPTS_UNASKED, &self.interruption.interrupt)
                && let Err(error) = interrupt.check()
            {
                self.interruption.error.replace(Some(error));
                attempts.set(0);
            }
        }
        !self.is_spent()
    }

    /// What the parser says, unless it was stopped: it may have lost that error on its way up, or
    /// taken a word for a name because it was stopped inside of what the word begins.
    pub(super) fn verdict<T>(&self, parsed: Result<T, ParserError>) -> Result<T, ParserError> {
        if self.is_spent() { Err(ParserError::RecursionLimitExceeded) } else { parsed }
    }

    /// For hooks that cannot fail: a parser that may not recurse any more does, soon.
    fn stop_if_spent(&self, parser: &mut Parser<'_>) {
        static POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};
        if self.is_spent() {
            *parser = std::mem::replace(parser, Parser::new(&POSTGRES)).with_recursion_limit(0);
        }
    }

    /// Whether the parser has tried so much that it is to stop.
    fn is_spent(&self) -> bool {
        self.attempts.as_ref().is_some_and(|attempts| attempts.get() == 0)
    }
}

impl Dialect for CognateDialect {
    /// The crate asks here and there whether it is parsing PostgreSQL: it is.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        self.postgres.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, character: char) -> bool {
        self.postgres.is_delimited_identifier_start(character)
    }

    fn is_identifier_start(&self, character: char) -> bool {
        self.postgres.is_identifier_start(character)
    }

    fn is_identifier_part(&self, character: char) -> bool {
        self.postgres.is_identifier_part(character)
    }

    fn is_custom_operator_part(&self, character: char) -> bool {
        self.postgres.is_custom_operator_part(character)
    }

    /// What begins with such a word is not tried again as a name when it does not parse.
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        matches!(keyword, Keyword::ARRAY | Keyword::CASE | Keyword::CAST | Keyword::NOT)
            || self.postgres.is_reserved_for_identifier(keyword)
    }

    /// All operators but those of arithmetic and comparison bind alike. The crate lets `~` and `~~`
    /// bind like `=`, and `OPERATOR(...)` like BETWEEN.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk
            | Token::Spaceship => Some(Ok(self.prec_value(Precedence::PgOther))),
            // Behind a column these may be its name.
            Token::Word(word) if matches!(word.keyword, Keyword::OPERATOR | Keyword::MATCH) => {
                let opens = parser.peek_nth_token_ref(1).token == Token::LParen;
                let is_operator = opens && word.keyword == Keyword::OPERATOR;
                Some(Ok(if is_operator { self.prec_value(Precedence::PgOther) } else { 0 }))
            }
            _ => self.postgres.get_next_precedence(parser),
        }
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        self.postgres.prec_value(precedence)
    }

    /// `f(name := value)`, the older spelling of `f(name => value)`.
    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
    }

    /// The tokenizer knows the backslash only: see `unicode`.
    fn supports_unicode_string_literal(&self) -> bool {
        false
    }

    delegate!(
        supports_filter_during_aggregation,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_set_names,
        supports_alter_column_type_using,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim
    );

    /// Asked for with every expression and every query, also those in FROM, which begin with no
    /// expression.
    fn prec_unknown(&self) -> u8 {
        self.attempt();
        self.postgres.prec_unknown()
    }

    /// Counts statements within statements (`EXPLAIN EXPLAIN ...`), for which the crate does not
    /// look at the stack: the crate's own function is called from here, which asks here again.
    fn parse_statement(&self, parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
        if self.asks_again.replace(false) {
            return None;
        }
        let depth = self.statements.get();
        if !self.attempt() || depth == STATEMENTS_NESTED {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        self.statements.set(depth + 1);
        let statement = stacker::maybe_grow(RED_ZONE, FRESH_STACK, || {
            super::merge::parse(parser).or_else(|| self.explained_query(parser)).unwrap_or_else(|| {
                self.asks_again.set(true);
                parser.parse_statement()
            })
        });
        self.statements.set(depth);
        Some(statement)
    }

    fn parse_column_option(
        &self,
        parser: &mut Parser<'_>,
    ) -> Result<Option<Result<Option<ColumnOption>, ParserError>>, ParserError> {
        if !self.attempt() {
            return Err(ParserError::RecursionLimitExceeded);
        }
        if is_word(parser, 0, "UNIQUE") && is_word(parser, 1, "NULLS") {
            return Ok(Some(unique_nulls(parser).map(Some)));
        }
        // The storage parameters of the key before.
        if is_word(parser, 0, "WITH") && parser.peek_nth_token_ref(1).token == Token::LParen {
            return Ok(Some(parser.parse_options(Keyword::WITH).map(ColumnOption::Options).map(Some)));
        }
        self.postgres.parse_column_option(parser)
    }

    fn is_select_item_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        self.stop_if_spent(parser);
        explicit || words::is_label(*keyword)
    }

    fn is_table_factor_alias(&self, explicit: bool, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        self.stop_if_spent(parser);
        explicit || words::is_table_alias(*keyword)
    }

    /// PostgreSQL has no `ARRAY<type>`, which the crate reads with a recursion that never looks at
    /// the stack.
    fn supports_array_typedef_without_element_type(&self) -> bool {
        true
    }

    /// Without this a query that selects nothing must begin an expression, which is refused when
    /// the parser is to stop.
    fn supports_empty_projections(&self) -> bool {
        !self.is_spent()
    }

    /// Signs: the crate lets `-2 ^ 2` be -(2 ^ 2); PostgreSQL's sign binds tighter. Other operators
    /// before an operand bind like those between two: `@ a + b` is @(a + b). See [`unary`], too.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if !self.attempt() {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        if let Some(operand) = self.in_parentheses(parser) {
            return Some(operand);
        }
        if let Some(name) = words::name(parser) {
            return Some(name);
        }
        if is_xml(parser) {
            return Some(parser.expected_ref("an expression", parser.peek_token_ref()));
        }
        if let Some(refused) = list_behind_value(parser) {
            return Some(refused);
        }
        if let Some(grouping) = grouping_sets(parser) {
            return Some(grouping);
        }
        if let Some(literal) = interval_literal(parser) {
            return Some(literal);
        }
        if let Some(literal) = literal_of_named_type(parser) {
            return Some(literal);
        }
        let word = ["CURRENT_SCHEMA", "CURRENT_ROLE"].iter().any(|word| is_word(parser, 0, word));
        if word && !matches!(parser.peek_nth_token_ref(1).token, Token::LParen | Token::Period) {
            return Some(function_without_parentheses(parser));
        }
        // The crate takes it for the begin of a placeholder.
        if parser.peek_token_ref().token == Token::Colon {
            return Some(parser.expected_ref("an expression", parser.peek_token_ref()));
        }
        let other = self.prec_value(Precedence::PgOther);
        if let Some(call) = unknown_operator(parser, other) {
            return Some(call);
        }
        let named = named_operator(parser);
        let op = prefix_operator(&parser.peek_nth_token_ref(named.map_or(0, |(at, _)| at)).token)?;
        let is_sign = named.is_none() && matches!(op, UnaryOperator::Minus | UnaryOperator::Plus);
        (0..named.map_or(1, |(_, length)| length)).for_each(|_| parser.advance_token());
        let precedence = if is_sign { UNARY_SIGN } else { other };
        Some(parser.parse_subexpr(precedence).map(|operand| unary(op, operand)))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if parser.peek_keyword(Keyword::IS) {
            return self.is_distinct(parser, left);
        }
        if parser.peek_keyword(Keyword::BETWEEN)
            || parser.peek_keyword(Keyword::IN)
            || parser.peek_keyword(Keyword::NOT)
        {
            return self.list_of_queries(parser, left).or_else(|| self.between_symmetric(parser, left));
        }
        None
    }
}

/// `UNIQUE NULLS [NOT] DISTINCT` of a column, which the crate knows of a table only.
fn unique_nulls(parser: &mut Parser<'_>) -> Result<ColumnOption, ParserError> {
    const NOT_DISTINCT: [Keyword; 4] = [Keyword::UNIQUE, Keyword::NULLS, Keyword::NOT, Keyword::DISTINCT];
    let nulls_distinct = if parser.parse_keywords(&NOT_DISTINCT) {
        NullsDistinctOption::NotDistinct
    } else {
        parser.expect_keywords(&[Keyword::UNIQUE, Keyword::NULLS, Keyword::DISTINCT])?;
        NullsDistinctOption::Distinct
    };
    Ok(ColumnOption::Unique(UniqueConstraint {
        name: None,
        index_name: None,
        index_type_display: KeyOrIndexDisplay::None,
        index_type: None,
        columns: vec![],
        index_options: vec![],
        characteristics: parser.parse_constraint_characteristics()?,
        nulls_distinct,
    }))
}

pub(super) fn is_word(parser: &Parser<'_>, ahead: usize, word: &str) -> bool {
    matches!(&parser.peek_nth_token_ref(ahead).token,
        Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// An operator before its operand. Printed, as what is stored is, the two stand side by side:
/// `- -a` would begin a comment, and `@ -a` be another operator. So an operand that begins with an
/// operator gets parentheses, which `complexity` counts.
fn unary(op: UnaryOperator, operand: Expr) -> Expr {
    let operand = match begins_with_operator(&operand) {
        true => Expr::Nested(Box::new(operand)),
        false => operand,
    };
    Expr::UnaryOp { op, expr: Box::new(operand) }
}

fn begins_with_operator(expr: &Expr) -> bool {
    let mut first = expr;
    loop {
        first = match first {
            Expr::UnaryOp { .. } => return true,
            Expr::BinaryOp { left, .. } => left.as_ref(),
            Expr::Cast { kind: CastKind::DoubleColon, expr, .. } => expr.as_ref(),
            Expr::AtTimeZone { timestamp, .. } => timestamp.as_ref(),
            Expr::CompoundFieldAccess { root, .. } => root.as_ref(),
            Expr::Collate { expr, .. } => expr.as_ref(),
            _ => return false,
        };
    }
}

/// `mood 'sad'`, `public.mood 'sad'`: the crate knows such literals of built-in types only, and not
/// of all.
fn literal_of_named_type(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let Token::Word(word) = &parser.peek_token_ref().token else { return None };
    let is_free = matches!(word.keyword, Keyword::NoKeyword | Keyword::NAME);
    let is_name = word.quote_style.is_some() || is_free;
    let token = |ahead: usize| &parser.peek_nth_token_ref(ahead).token;
    let value = match (token(1), token(2)) {
        (Token::Period, Token::Word(_)) => token(3),
        (first, _) => first,
    };
    if !is_name || !matches!(value, Token::SingleQuotedString(_)) {
        return None;
    }
    Some(parser.parse_object_name(false).and_then(|name| {
        let value = parser.parse_value()?;
        let data_type = DataType::Custom(name, vec![]);
        Ok(Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }))
    }))
}

impl CognateDialect {
    /// A query in parentheses, and all that is in those of ANY, SOME and ALL: the crate ends that
    /// where an operator follows that binds no tighter than the one before ANY.
    fn in_parentheses(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if is_quantified(parser) {
            if self.queries.holds(parser.get_current_index()) {
                return Some(parser.parse_query().map(Expr::Subquery));
            }
            if !self.reads_operand.replace(false) {
                self.reads_operand.set(true);
                let operand = parser.parse_expr();
                self.reads_operand.set(false);
                return Some(operand);
            }
        }
        let opens = parser.peek_token_ref().token == Token::LParen;
        let is_query = opens && (is_word(parser, 1, "VALUES") || self.queries.continues(next_place(parser)));
        is_query.then(|| query_in_parentheses(parser))
    }

    /// `[NOT] IN ((SELECT ...), 1)`: the crate takes the first query for all that is in the list.
    fn list_of_queries(&self, parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
        let negated = is_word(parser, 0, "NOT");
        let at = usize::from(negated);
        if !is_word(parser, at, "IN") {
            return None;
        }
        let opens = parser.peek_nth_token_ref(at + 1).token == Token::LParen;
        let bracket = next_place(parser) + at + 1;
        if !opens || self.queries.holds(bracket) || !self.queries.holds(bracket + 1) {
            return None;
        }
        (0..at + 2).for_each(|_| parser.advance_token());
        let list = parser.parse_comma_separated(Parser::parse_expr).and_then(|list| {
            parser.expect_token(&Token::RParen)?;
            Ok(list)
        });
        Some(list.map(|list| Expr::InList { expr: Box::new(left.clone()), list, negated }))
    }

    /// `EXPLAIN (SELECT ...)`, where the crate expects options.
    fn explained_query(&self, parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
        if !is_word(parser, 0, "EXPLAIN") || !self.queries.holds(next_place(parser) + 1) {
            return None;
        }
        parser.advance_token();
        Some(parser.parse_statement().map(|statement| Statement::Explain {
            describe_alias: DescribeAlias::Explain,
            analyze: false,
            verbose: false,
            query_plan: false,
            estimate: false,
            statement: Box::new(statement),
            format: None,
            options: None,
        }))
    }

    /// `IS [NOT] DISTINCT FROM`: the crate takes everything that follows as its right operand, AND
    /// and OR too.
    fn is_distinct(&self, parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
        let negated = is_word(parser, 1, "NOT");
        let at = if negated { 2 } else { 1 };
        if !is_word(parser, at, "DISTINCT") || !is_word(parser, at + 1, "FROM") {
            return None;
        }
        for _ in 0..at + 2 {
            parser.advance_token();
        }
        Some(parser.parse_subexpr(self.prec_value(Precedence::Is)).map(|right| {
            let (left, right) = (Box::new(left.clone()), Box::new(right));
            if negated { Expr::IsNotDistinctFrom(left, right) } else { Expr::IsDistinctFrom(left, right) }
        }))
    }

    /// `[NOT] BETWEEN [A]SYMMETRIC a AND b`, as both orders of the bounds.
    fn between_symmetric(&self, parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
        let negated = is_word(parser, 0, "NOT");
        let at = usize::from(negated);
        let symmetric = is_word(parser, at + 1, "SYMMETRIC");
        if !is_word(parser, at, "BETWEEN") || !(symmetric || is_word(parser, at + 1, "ASYMMETRIC")) {
            return None;
        }
        for _ in 0..at + 2 {
            parser.advance_token();
        }
        Some(self.between_bounds(parser, left, negated, symmetric))
    }

    fn between_bounds(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        negated: bool,
        symmetric: bool,
    ) -> Result<Expr, ParserError> {
        let precedence = self.prec_value(Precedence::Between);
        let low = parser.parse_subexpr(precedence)?;
        parser.expect_keyword_is(Keyword::AND)?;
        let high = parser.parse_subexpr(precedence)?;
        let between = |low: &Expr, high: &Expr| Expr::Between {
            expr: Box::new(left.clone()),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        };
        if !symmetric {
            return Ok(between(&low, &high));
        }
        Ok(Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(between(&low, &high)),
            op: if negated { BinaryOperator::And } else { BinaryOperator::Or },
            right: Box::new(between(&high, &low)),
        })))
    }
}
