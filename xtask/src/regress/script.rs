//! A psql script, cut into statements and meta commands as psql cuts it.
//!
//! What a script means depends on what the server answers: the lines after a COPY are data only if
//! the server asks for them, and `\gset` sets variables that later lines use. So the script is read
//! step by step, and whoever runs it says in between what happened.
//!
//! ```text
//! SELECT 1 AS a \gset          Statement { sql: "SELECT 1 AS a", end: Set("") }
//! \d t                         Meta { name: "d", .. }
//! SELECT :a, ':a', x::int;     Statement { sql: "SELECT 1, ':a', x::int", end: Plain }
//! COPY t FROM stdin;           Statement, then take_data() if the server asks
//! ```

use std::collections::HashMap;

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Statement { line: usize, sql: String, end: End },
    Meta { name: String, arguments: String },
}

/// How a statement ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Plain,
    /// `\gset` with its prefix: the row becomes variables.
    Set(String),
    /// `\gexec`: each value is a statement.
    Execute,
}

pub(crate) struct Script {
    text: Vec<char>,
    at: usize,
    pub(crate) variables: HashMap<String, String>,
    /// As the server says; E'' strings are not concerned.
    pub(crate) standard_strings: bool,
    /// For each `\if` that is open: whether its lines count, and whether one of its branches did.
    branches: Vec<(bool, bool)>,
    statement: Buffer,
}

/// The statement that is being read.
#[derive(Default)]
struct Buffer {
    sql: String,
    parentheses: usize,
    /// Depth of BEGIN ATOMIC and CASE in the body of a function.
    bodies: usize,
    /// Its first words, in lower case.
    words: Vec<String>,
    line: usize,
}

impl Script {
    pub(crate) fn new(text: &str) -> Script {
        Script {
            text: text.chars().collect(),
            at: 0,
            variables: HashMap::new(),
            standard_strings: true,
            branches: Vec::new(),
            statement: Buffer::default(),
        }
    }

    fn peek(&self, ahead: usize) -> char {
        self.text.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Where it is read, from 1.
    pub(crate) fn line(&self) -> usize {
        1 + self.text.iter().take(self.at).filter(|&&letter| letter == '\n').count()
    }

    /// Moves `count` letters into the statement.
    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(&letter) = self.text.get(self.at) {
                self.statement.sql.push(letter);
                self.at += 1;
            }
        }
    }

    /// The lines up to `\.`, which are the data of a COPY.
    pub(crate) fn take_data(&mut self) -> String {
        let mut data = String::new();
        self.rest_of_line();
        while self.at < self.text.len() {
            let line = self.rest_of_line();
            if line == "\\." {
                break;
            }
            data.push_str(&line);
            data.push('\n');
        }
        data
    }

    /// The data that a COPY would get, without taking it.
    pub(crate) fn see_data(&mut self) -> String {
        let at = self.at;
        let data = self.take_data();
        self.at = at;
        data
    }

    fn rest_of_line(&mut self) -> String {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let line: String = rest.iter().take_while(|&&letter| letter != '\n').collect();
        self.at += line.chars().count() + 1;
        line
    }

    fn counts(&self) -> bool {
        self.branches.iter().all(|(counts, _)| *counts)
    }

    /// The next statement or meta command that counts.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
        loop {
            let step = self.read()?;
            match step {
                Step::Meta { ref name, ref arguments } => match name.as_str() {
                    "if" => {
                        let counts = truth(arguments);
                        self.branches.push((counts, counts));
                    }
                    "elif" | "else" => {
                        let counts = name == "else" || truth(arguments);
                        if let Some(branch) = self.branches.last_mut() {
                            *branch = (counts && !branch.1, counts || branch.1);
                        }
                    }
                    "endif" => drop(self.branches.pop()),
                    _ if !self.counts() => {}
                    "quit" | "q" => return None,
                    "set" => self.set(arguments),
                    "unset" => drop(self.variables.remove(arguments.trim())),
                    _ => return Some(step),
                },
                Step::Statement { .. } if !self.counts() => {}
                Step::Statement { .. } => return Some(step),
            }
        }
    }

    fn set(&mut self, arguments: &str) {
        let mut words = arguments.splitn(2, char::is_whitespace);
        if let Some(name) = words.next() {
            self.variables.insert(name.to_owned(), unquoted(words.next().unwrap_or_default().trim()));
        }
    }

    fn read(&mut self) -> Option<Step> {
        loop {
            if self.at >= self.text.len() {
                return self.send(End::Plain);
            }
            if self.statement.sql.trim().is_empty() {
                self.statement.sql.clear();
                self.statement.line = self.line();
            }
            match (self.peek(0), self.peek(1)) {
                ('-', '-') => self.comment(),
                ('/', '*') => self.long_comment(),
                ('\'', _) => self.quoted('\''),
                ('"', _) => self.quoted('"'),
                ('$', _) if !follows_word(&self.statement.sql) => self.dollar_quoted(),
                ('\\', ';') => {
                    self.at += 1;
                    self.keep(1);
                }
                ('\\', _) => {
                    if let Some(step) = self.meta() {
                        return Some(step);
                    }
                }
                (':', ':') => self.keep(2),
                (':', _) => self.variable(),
                (';', _) if self.statement.parentheses == 0 && self.statement.bodies == 0 => {
                    self.at += 1;
                    if let Some(step) = self.send(End::Plain) {
                        return Some(step);
                    }
                }
                (letter, _) if letter.is_alphabetic() || letter == '_' => self.word(),
                (letter, _) => {
                    match letter {
                        '(' => self.statement.parentheses += 1,
                        ')' => self.statement.parentheses = self.statement.parentheses.saturating_sub(1),
                        _ => {}
                    }
                    self.keep(1);
                }
            }
        }
    }

    fn send(&mut self, end: End) -> Option<Step> {
        let statement = std::mem::take(&mut self.statement);
        let sql = statement.sql.trim().to_owned();
        (!sql.is_empty()).then_some(Step::Statement { line: statement.line, sql, end })
    }

    /// A comment before a statement is not part of it.
    fn comment(&mut self) {
        let line = self.rest_of_line();
        if !self.statement.sql.is_empty() {
            self.statement.sql.push_str(&line);
            self.statement.sql.push('\n');
        }
    }

    fn long_comment(&mut self) {
        let begin = self.statement.sql.len();
        let mut depth = 0;
        while self.at < self.text.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.keep(1);
                    continue;
                }
            }
            self.keep(2);
            if depth == 0 {
                break;
            }
        }
        if begin == 0 {
            self.statement.sql.clear();
        }
    }

    fn quoted(&mut self, mark: char) {
        let before = self.statement.sql.strip_suffix(['e', 'E']);
        let escapes = before.is_some_and(|before| !follows_word(before)) || !self.standard_strings;
        self.keep(1);
        while self.at < self.text.len() {
            match self.peek(0) {
                '\\' if escapes && mark == '\'' => self.keep(2),
                letter if letter == mark => {
                    self.keep(1);
                    return;
                }
                _ => self.keep(1),
            }
        }
    }

    fn dollar_quoted(&mut self) {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let tag: String =
            rest.iter().take_while(|letter| letter.is_alphanumeric() || **letter == '_').collect();
        let is_tag = !tag.starts_with(|first: char| first.is_ascii_digit());
        if !is_tag || rest.get(tag.chars().count()) != Some(&'$') {
            self.keep(1);
            return;
        }
        let mark: Vec<char> = format!("${tag}$").chars().collect();
        self.keep(mark.len());
        while self.at < self.text.len() {
            if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(&mark)) {
                self.keep(mark.len());
                return;
            }
            self.keep(1);
        }
    }

    /// A word; those that open and close the body of a function are counted, since semicolons
    /// within end nothing.
    fn word(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let word: String =
            rest.iter().take_while(|letter| letter.is_alphanumeric() || **letter == '_').collect();
        self.keep(word.chars().count());
        let word = word.to_lowercase();
        let statement = &mut self.statement;
        if statement.words.len() < 4 {
            statement.words.push(word.clone());
        }
        let words: Vec<_> = statement.words.iter().map(String::as_str).collect();
        let function = matches!(
            words.as_slice(),
            ["create", "function" | "procedure", ..]
                | ["create", "or", "replace", "function" | "procedure", ..]
        );
        if function && statement.parentheses == 0 {
            match word.as_str() {
                "begin" => statement.bodies += 1,
                "case" if statement.bodies > 0 => statement.bodies += 1,
                "end" => statement.bodies = statement.bodies.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// `:name`, `:'name'`, `:"name"`; a name without a value stays as it is written.
    fn variable(&mut self) {
        let (value, length) = self.interpolated(self.at);
        match value {
            Some(value) => {
                self.statement.sql.push_str(&value);
                self.at += length;
            }
            None => self.keep(1),
        }
    }

    fn interpolated(&self, at: usize) -> (Option<String>, usize) {
        let rest = self.text.get(at + 1..).unwrap_or_default();
        let mark = rest.first().copied().filter(|mark| matches!(mark, '\'' | '"'));
        let from = usize::from(mark.is_some());
        let letters = rest.iter().skip(from);
        let name: String = letters.take_while(|letter| letter.is_alphanumeric() || **letter == '_').collect();
        let length = 1 + name.chars().count() + 2 * from;
        let Some(value) = self.variables.get(&name) else { return (None, length) };
        match mark {
            None => (Some(value.clone()), length),
            Some(mark) if rest.get(length - 2) == Some(&mark) => {
                (Some(format!("{mark}{}{mark}", value.replace(mark, &format!("{mark}{mark}")))), length)
            }
            Some(_) => (None, length),
        }
    }

    /// A meta command. Those of the `\g` family send what was read so far.
    fn meta(&mut self) -> Option<Step> {
        self.at += 1;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let name: String = rest.iter().take_while(|letter| letter.is_alphanumeric()).collect();
        if name.is_empty() {
            // Such as `\.` where nobody asked for data, or `\!`.
            self.rest_of_line();
            return None;
        }
        self.at += name.chars().count();
        let arguments = self.arguments(&name);
        match name.as_str() {
            "g" | "gx" | "crosstabview" | "watch" => self.send(End::Plain),
            "gset" => self.send(End::Set(arguments)),
            "gexec" => self.send(End::Execute),
            // It only describes what the statement would return.
            "gdesc" | "r" | "reset" => {
                self.statement = Buffer::default();
                Some(Step::Meta { name, arguments })
            }
            _ => Some(Step::Meta { name, arguments }),
        }
    }

    /// To the end of the line or the next meta command, with variables put in.
    fn arguments(&mut self, name: &str) -> String {
        let mut arguments = String::new();
        while !matches!(self.peek(0), '\n' | '\0') {
            match self.peek(0) {
                '\\' if name != "copy" => break,
                ':' if name != "copy" => match self.interpolated(self.at) {
                    (Some(value), length) => {
                        arguments.push_str(&value);
                        self.at += length;
                    }
                    (None, _) => {
                        arguments.push(':');
                        self.at += 1;
                    }
                },
                letter => {
                    arguments.push(letter);
                    self.at += 1;
                }
            }
        }
        arguments.trim().to_owned()
    }
}

fn follows_word(before: &str) -> bool {
    before.ends_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$'))
}

fn truth(text: &str) -> bool {
    matches!(unquoted(text.trim()).to_lowercase().as_str(), "t" | "true" | "1" | "on" | "yes")
}

/// Words of a meta command, put together: those in quotation marks without them.
fn unquoted(text: &str) -> String {
    let (mut value, mut quoted, mut letters) = (String::new(), false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '\'' if quoted && letters.peek() == Some(&'\'') => {
                value.push('\'');
                letters.next();
            }
            '\'' => quoted = !quoted,
            letter if letter.is_whitespace() && !quoted => {}
            letter => value.push(letter),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{End, Script, Step};

    fn statements(text: &str) -> Vec<String> {
        let mut script = Script::new(text);
        let mut all = Vec::new();
        while let Some(step) = script.next_step() {
            if let Step::Statement { sql, .. } = step {
                all.push(sql);
            }
        }
        all
    }

    #[test]
    fn semicolons_end_statements_only_outside_of_quotes_parentheses_and_bodies() {
        let text = "-- a;\nSELECT ';', $a$ ; $$ $a$, E'\\';' /* ; /* ; */ ; */;\n\
            SELECT 1\\; SELECT 2;\nCREATE RULE r DO (SELECT 1; SELECT 2);\n\
            CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END;\n\
            SELECT 3";
        assert_eq!(
            statements(text),
            [
                "SELECT ';', $a$ ; $$ $a$, E'\\';' /* ; /* ; */ ; */",
                "SELECT 1; SELECT 2",
                "CREATE RULE r DO (SELECT 1; SELECT 2)",
                "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
                "SELECT 3",
            ]
        );
    }

    #[test]
    fn variables_are_put_in_outside_of_strings() {
        let text = "\\set a 'it''s' x\nSELECT :a, :'a', :\"a\", ':a', b::int, c[1:2], :unknown;";
        assert_eq!(statements(text), ["SELECT it'sx, 'it''sx', \"it'sx\", ':a', b::int, c[1:2], :unknown"]);
    }

    #[test]
    fn branches_that_do_not_count_are_left_out() {
        let text = "\\if false\nSELECT 1;\n\\elif true\nSELECT 2;\n\\else\nSELECT 3;\n\\endif\nSELECT 4 \\g\n\\quit\nSELECT 5;";
        assert_eq!(statements(text), ["SELECT 2", "SELECT 4"]);
    }

    #[test]
    fn data_follows_a_copy() {
        let mut script = Script::new("COPY t FROM stdin;\n1\n2\n\\.\nSELECT 1 AS x \\gset p_\n");
        assert!(matches!(script.next_step(), Some(Step::Statement { line: 1, .. })));
        assert_eq!(script.see_data(), "1\n2\n");
        assert_eq!(script.take_data(), "1\n2\n");
        assert_eq!(
            script.next_step(),
            Some(Step::Statement { line: 5, sql: "SELECT 1 AS x".into(), end: End::Set("p_".into()) })
        );
    }
}
