//! Two servers' answers to one message, and what kind of difference there is.
//!
//! PostgreSQL's answer is right by definition. Rows are compared in order as far as ORDER BY fixes
//! it: by the columns that it names; as a multiset otherwise. Plans (EXPLAIN) are each server's own
//! business: of them only that both answer counts. Types that a script made have numbers of the
//! server's choice.

use super::wire::{Answer, Column, Outcome};

/// Kinds of difference, in the order of the table's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Equal,
    /// Both refuse, with different SQLSTATEs.
    OtherState,
    /// Refused by name: 0A000.
    NotSupported,
    /// Refused in another way where PostgreSQL answers.
    Refused,
    /// Answered where PostgreSQL refuses.
    Accepted,
    /// Other names or types of columns.
    OtherColumns,
    /// Other rows, or another command tag.
    WrongData,
    /// XX000.
    Internal,
    /// No answer in time, or a broken connection.
    Hang,
}

impl Class {
    pub(crate) const ALL: [Class; 9] = [
        Class::Equal,
        Class::OtherState,
        Class::NotSupported,
        Class::Refused,
        Class::Accepted,
        Class::OtherColumns,
        Class::WrongData,
        Class::Internal,
        Class::Hang,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Equal => "equal",
            Class::OtherState => "other SQLSTATE",
            Class::NotSupported => "not supported",
            Class::Refused => "refused",
            Class::Accepted => "accepted",
            Class::OtherColumns => "other columns",
            Class::WrongData => "wrong data",
            Class::Internal => "XX000",
            Class::Hang => "hang",
        }
    }

    /// Whether the command fails on one that is not excused.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Class::WrongData | Class::Internal | Class::Hang)
    }
}

/// Compares what both said to `sql`; the text says how they differ.
pub(crate) fn compare(sql: &str, wanted: &Outcome, got: &Outcome) -> (Class, String) {
    match (wanted, got) {
        (_, Outcome::Hang { cancelled }) => {
            (Class::Hang, format!("no answer in time; heeded the cancel: {cancelled}"))
        }
        (_, Outcome::Gone(why)) => (Class::Hang, format!("the connection broke: {why}")),
        (Outcome::Answers(wanted), Outcome::Answers(got)) => answers(sql, wanted, got),
        // PostgreSQL itself did not answer in time.
        _ => (Class::Equal, String::new()),
    }
}

fn answers(sql: &str, wanted: &[Answer], got: &[Answer]) -> (Class, String) {
    let none = Answer::default();
    for index in 0..wanted.len().max(got.len()) {
        let (wanted, got) = (wanted.get(index).unwrap_or(&none), got.get(index).unwrap_or(&none));
        let class = one(sql, wanted, got);
        if class != Class::Equal {
            return (class, format!("PostgreSQL: {}\n    Cognate:    {}", told(wanted), told(got)));
        }
    }
    (Class::Equal, String::new())
}

fn one(sql: &str, wanted: &Answer, got: &Answer) -> Class {
    match (&wanted.error, &got.error) {
        (Some(wanted), Some(got)) if wanted.state == got.state => Class::Equal,
        (_, Some(got)) if got.state == "XX000" => Class::Internal,
        (None, Some(got)) if got.state == "0A000" => Class::NotSupported,
        (Some(_), Some(_)) => Class::OtherState,
        (None, Some(_)) => Class::Refused,
        (Some(_), None) => Class::Accepted,
        (None, None) => data(sql, wanted, got),
    }
}

fn data(sql: &str, wanted: &Answer, got: &Answer) -> Class {
    let words: Vec<String> = tokens(sql);
    if words.first().is_some_and(|word| word == "explain") {
        return if wanted.columns.len() == got.columns.len() { Class::Equal } else { Class::OtherColumns };
    }
    let same_values = wanted.tag == got.tag && same_rows(&words, wanted, got) && wanted.copied == got.copied;
    let same_columns = wanted.columns.len() == got.columns.len()
        && wanted.columns.iter().zip(&got.columns).all(|(wanted, got)| same_column(wanted, got));
    match (same_values, same_columns) {
        (true, true) => Class::Equal,
        (true, false) => Class::OtherColumns,
        (false, _) => Class::WrongData,
    }
}

/// The first number that is given to what users make.
const FIRST_OF_USERS: u32 = 16_384;

fn same_column(wanted: &Column, got: &Column) -> bool {
    let own = wanted.type_id >= FIRST_OF_USERS && got.type_id >= FIRST_OF_USERS;
    wanted.name == got.name && (own || wanted.type_id == got.type_id)
}

fn same_rows(words: &[String], wanted: &Answer, got: &Answer) -> bool {
    if wanted.rows == got.rows {
        return true;
    }
    let (mut left, mut right): (Vec<_>, Vec<_>) = (wanted.rows.clone(), got.rows.clone());
    left.sort();
    right.sort();
    left == right && {
        let keys = order_keys(words, &wanted.columns);
        let of = |answer: &Answer| -> Vec<Vec<Option<String>>> {
            let rows = answer.rows.iter();
            rows.map(|row| keys.iter().map(|&key| row.get(key).cloned().flatten()).collect()).collect()
        };
        of(wanted) == of(got)
    }
}

/// The output columns that the outermost ORDER BY names, up to the first item that is an
/// expression.
fn order_keys(words: &[String], columns: &[Column]) -> Vec<usize> {
    let (mut depth, mut begin) = (0_i32, None);
    for (index, word) in words.iter().enumerate() {
        match word.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            "by" if depth == 0 && index > 0 && words.get(index - 1).is_some_and(|word| word == "order") => {
                begin = Some(index + 1);
            }
            _ => {}
        }
    }
    let Some(begin) = begin else { return Vec::new() };
    let mut keys = Vec::new();
    let mut rest = words.get(begin..).unwrap_or_default();
    while let [name, after @ ..] = rest {
        let by_name =
            columns.iter().position(|column| column.name == *name || column.name == name.trim_matches('"'));
        let key = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).or(by_name);
        let Some(key) = key.filter(|&key| key < columns.len()) else { break };
        let sorting = ["asc", "desc", "nulls", "first", "last"];
        let skipped = after.iter().take_while(|word| sorting.contains(&word.as_str())).count();
        let after = after.get(skipped..).unwrap_or_default();
        match after.first().map(String::as_str) {
            Some(",") => rest = after.get(1..).unwrap_or_default(),
            None | Some("limit" | "offset" | "fetch" | "for") => rest = &[],
            // An expression that begins with a column.
            Some(_) => break,
        }
        keys.push(key);
    }
    keys
}

/// Words in lower case, names in quotation marks, strings as one, and single signs; without
/// comments.
pub(crate) fn tokens(sql: &str) -> Vec<String> {
    let letters: Vec<char> = sql.chars().collect();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(&letter) = letters.get(at) {
        let rest = letters.get(at..).unwrap_or_default();
        let length = match letter {
            _ if rest.starts_with(&['-', '-']) => rest.iter().take_while(|&&letter| letter != '\n').count(),
            _ if rest.starts_with(&['/', '*']) => {
                rest.windows(2).skip(2).position(|pair| pair == ['*', '/']).map_or(rest.len(), |end| end + 4)
            }
            '\'' | '"' => rest.iter().skip(1).take_while(|&&other| other != letter).count() + 2,
            _ if letter.is_alphanumeric() || letter == '_' => {
                rest.iter().take_while(|letter| letter.is_alphanumeric() || **letter == '_').count()
            }
            _ => 1,
        };
        let token: String = rest.iter().take(length).collect();
        at += length.max(1);
        if token.trim().is_empty() || token.starts_with("--") || token.starts_with("/*") {
            continue;
        }
        all.push(if token.starts_with(['"', '\'']) { token } else { token.to_lowercase() });
    }
    all
}

/// An answer in a few lines.
fn told(answer: &Answer) -> String {
    if let Some(error) = &answer.error {
        return format!("{} {}", error.state, error.message);
    }
    let tag = answer.tag.as_deref().unwrap_or("nothing");
    let columns: Vec<String> =
        answer.columns.iter().map(|column| format!("{}:{}", column.name, column.type_id)).collect();
    let row = |row: &Vec<Option<String>>| {
        row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join(" | ")
    };
    let rows: Vec<String> = answer.rows.iter().take(12).map(row).collect();
    let mut text = format!("{tag} [{}]", columns.join(", "));
    for row in rows {
        text.push_str("\n        ");
        text.extend(row.chars().take(300));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[&str]) -> Outcome {
        let columns = vec![Column { name: "a".into(), type_id: 25 }];
        let rows = values.iter().map(|value| vec![Some((*value).to_owned())]).collect();
        Outcome::Answers(vec![Answer {
            columns,
            rows,
            tag: Some(format!("SELECT {}", values.len())),
            ..Answer::default()
        }])
    }

    #[test]
    fn order_counts_where_it_is_asked_for() {
        let (one, other) = (rows(&["1", "2"]), rows(&["2", "1"]));
        assert_eq!(compare("SELECT a FROM t", &one, &other).0, Class::Equal);
        assert_eq!(compare("SELECT a FROM (SELECT a FROM t ORDER BY a) t", &one, &other).0, Class::Equal);
        assert_eq!(compare("SELECT a FROM t ORDER BY 1", &one, &other).0, Class::WrongData);
        assert_eq!(compare("SELECT a FROM t ORDER BY a DESC LIMIT 2", &one, &other).0, Class::WrongData);
        assert_eq!(compare("SELECT a FROM t ORDER BY a + b", &one, &other).0, Class::Equal);
        assert_eq!(compare("SELECT a FROM t", &one, &rows(&["1"])).0, Class::WrongData);
    }
}
