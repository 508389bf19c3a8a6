//! Reading blocks and their statements.

use super::condition;
use super::reader::{Piece, Reader};
use super::{Block, Declaration, Declared, Diagnostic, Handler, Into, NESTING_MAX, Over, Step, What, raise};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse;
use crate::parse::lexeme::Kind;

/// Words that no statement begins with: what is around goes on there.
const ENDS: &[&str] = &["end", "exception", "else", "elsif", "elseif", "when"];

/// Statements of the language that there are none of here.
const REFUSED: &[(&str, &str)] = &[
    ("assert", "ASSERT"),
    ("close", "CLOSE"),
    ("commit", "COMMIT"),
    ("fetch", "FETCH"),
    ("foreach", "FOREACH"),
    ("move", "MOVE"),
    ("open", "OPEN"),
    ("rollback", "ROLLBACK"),
];

fn refused(what: &str) -> SqlError {
    SqlError::unsupported(format!("{what} in a DO block"))
}

/// Reads the block of a text, and nothing behind it.
pub(super) fn read(text: &str) -> Result<Block> {
    let mut reader = Reader::new(text);
    let label = label(&mut reader)?;
    let block = block(&mut reader, label)?;
    reader.take(";");
    match reader.peek(0) {
        Some(_) => Err(reader.error()),
        None => Ok(block),
    }
}

/// `<<name>>`.
fn label(reader: &mut Reader<'_>) -> Result<Option<String>> {
    if !reader.take("<<") {
        return Ok(None);
    }
    let name = reader.name()?;
    reader.expect(">>")?;
    Ok(Some(name))
}

/// The label behind an END or END LOOP, which has to be that of the beginning.
fn end_label(reader: &mut Reader<'_>, label: Option<&str>) -> Result<()> {
    if reader.is(0, ";") || reader.peek(0).is_none() {
        return Ok(());
    }
    let name = reader.name()?;
    match label {
        Some(label) if label == name => Ok(()),
        Some(label) => {
            Err(SqlError::syntax(format!("end label \"{name}\" differs from block's label \"{label}\"")))
        }
        None => Err(SqlError::syntax(format!("end label \"{name}\" specified for unlabeled block"))),
    }
}

/// `[DECLARE …] BEGIN … [EXCEPTION …] END [label]`.
fn block(reader: &mut Reader<'_>, label: Option<String>) -> Result<Block> {
    let mut variables = Vec::new();
    if reader.take("declare") {
        while !reader.is(0, "begin") {
            // A second DECLARE is a habit of some.
            if !reader.take("declare") {
                variables.push(declaration(reader)?);
            }
        }
    }
    reader.expect("begin")?;
    let body = steps(reader)?;
    let mut handlers = Vec::new();
    if reader.take("exception") {
        while reader.take("when") {
            let mut conditions = vec![condition::read(reader)?];
            while reader.take("or") {
                conditions.push(condition::read(reader)?);
            }
            reader.expect("then")?;
            handlers.push(Handler { conditions, body: steps(reader)? });
        }
        if handlers.is_empty() {
            return Err(reader.error());
        }
    }
    reader.expect("end")?;
    end_label(reader, label.as_deref())?;
    Ok(Block { label, variables, body, handlers })
}

/// `name [CONSTANT] type [NOT NULL] [{DEFAULT | := | =} expression];`
fn declaration(reader: &mut Reader<'_>) -> Result<Declaration> {
    let line = reader.line();
    let name = reader.name()?;
    if reader.is(0, "alias") || reader.is(0, "cursor") || reader.is(0, "refcursor") {
        let what = reader.peek(0).map_or("", |piece| piece.text).to_uppercase();
        return Err(refused(&what));
    }
    let constant = reader.take("constant");
    let ty = declared(reader)?;
    if reader.is(0, "collate") {
        return Err(refused("COLLATE of a variable"));
    }
    let not_null = reader.take("not");
    if not_null {
        reader.expect("null")?;
    }
    let default = match reader.take("default") || reader.take(":=") || reader.take("=") {
        true => Some(reader.until(&[";"])?),
        false => None,
    };
    reader.expect(";")?;
    if not_null && default.is_none() {
        return Err(SqlError::new(
            sqlstate::NULL_VALUE_NOT_ALLOWED,
            format!("variable \"{name}\" must have a default value, since it's declared NOT NULL"),
        ));
    }
    Ok(Declaration { line, name, ty, constant, not_null, default })
}

fn declared(reader: &mut Reader<'_>) -> Result<Declared> {
    if reader.take("record") {
        return Ok(Declared::Record(None));
    }
    let source = reader.source;
    let ends = [";", ":=", "=", "default", "not", "collate"];
    let pieces: Vec<Piece<'_>> = reader.pieces_until(&ends)?.to_vec();
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    let is_like = pieces.len() > 2 && pieces[pieces.len() - 2].text == "%";
    if !is_like {
        let data_type = parse::data_type(&source[first.start..last.end()])?;
        return Ok(Declared::Type(Box::new(data_type)));
    }
    let names = pieces[..pieces.len() - 2].iter().filter(|piece| piece.text != ".");
    let names = names.map(|piece| piece.as_name().ok_or_else(|| near(piece))).collect::<Result<_>>()?;
    match () {
        () if last.is("type") => Ok(Declared::Like(names)),
        () if last.is("rowtype") => Ok(Declared::Record(Some(names))),
        () => Err(near(&last)),
    }
}

fn near(piece: &Piece<'_>) -> SqlError {
    SqlError::syntax(format!("syntax error at or near \"{}\"", piece.text))
}

/// Statements, up to a word that none begins with.
fn steps(reader: &mut Reader<'_>) -> Result<Vec<Step>> {
    reader.depth += 1;
    if reader.depth > NESTING_MAX {
        return Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
            .with_detail(format!("Blocks, loops and branches may be nested up to {NESTING_MAX} deep.")));
    }
    let mut steps = Vec::new();
    while !reader.is_any(ENDS) {
        if reader.peek(0).is_none() {
            return Err(reader.error());
        }
        let line = reader.line();
        let what = step(reader)?;
        steps.push(Step { line, what });
    }
    reader.depth -= 1;
    Ok(steps)
}

fn step(reader: &mut Reader<'_>) -> Result<What> {
    if let Some(assignment) = assignment(reader)? {
        return Ok(assignment);
    }
    let label = label(reader)?;
    if reader.is(0, "declare") || reader.is(0, "begin") {
        let block = block(reader, label)?;
        reader.expect(";")?;
        return Ok(What::Block(Box::new(block)));
    }
    if reader.is_any(&["loop", "while", "for"]) {
        return whole_loop(reader, label);
    }
    if label.is_some() {
        return Err(reader.error());
    }
    let Some(first) = reader.peek(0).copied() else { return Err(reader.error()) };
    if let Some((_, what)) = REFUSED.iter().find(|(word, _)| first.is(word)) {
        return Err(refused(what));
    }
    match first.text.to_ascii_lowercase().as_str() {
        "null" => {
            reader.advance();
            reader.expect(";")?;
            Ok(What::Null)
        }
        "if" => branches(reader),
        "case" => cases(reader),
        "exit" | "continue" => exit(reader),
        "return" => {
            reader.advance();
            if !reader.take(";") {
                return Err(SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    "RETURN cannot have a parameter in function returning void",
                ));
            }
            Ok(What::Return)
        }
        "raise" => {
            reader.advance();
            raise::read(reader).map(|raise| What::Raise(Box::new(raise)))
        }
        "perform" => {
            reader.advance();
            let query = reader.until(&[";"])?;
            reader.expect(";")?;
            Ok(What::Perform(query))
        }
        "execute" => execute(reader),
        "get" => diagnostics(reader),
        _ => sql(reader),
    }
}

/// `name := expression;`, also with `=`.
fn assignment(reader: &mut Reader<'_>) -> Result<Option<What>> {
    let is_name = reader.peek(0).is_some_and(|piece| piece.as_name().is_some());
    if !is_name {
        return Ok(None);
    }
    if !reader.is(1, ":=") && !reader.is(1, "=") {
        let is_field = reader.is(1, ".") && (reader.is(3, ":=") || reader.is(3, "="));
        return match is_field || reader.is(1, "[") {
            true => Err(refused("an assignment to a part of a variable")),
            false => Ok(None),
        };
    }
    let target = reader.name()?;
    reader.advance();
    let expression = reader.until(&[";"])?;
    reader.expect(";")?;
    Ok(Some(What::Assign { target, expression }))
}

fn branches(reader: &mut Reader<'_>) -> Result<What> {
    reader.expect("if")?;
    let mut branches = vec![branch(reader)?];
    while reader.take("elsif") || reader.take("elseif") {
        branches.push(branch(reader)?);
    }
    let otherwise = if reader.take("else") { Some(steps(reader)?) } else { None };
    for word in ["end", "if", ";"] {
        reader.expect(word)?;
    }
    Ok(What::If { branches, otherwise, is_case: false })
}

/// `condition THEN statements`.
fn branch(reader: &mut Reader<'_>) -> Result<(String, Vec<Step>)> {
    let condition = reader.until(&["then"])?;
    reader.expect("then")?;
    Ok((condition, steps(reader)?))
}

fn cases(reader: &mut Reader<'_>) -> Result<What> {
    reader.expect("case")?;
    if !reader.is(0, "when") {
        return Err(refused("CASE with an expression"));
    }
    let mut branches = Vec::new();
    while reader.take("when") {
        branches.push(branch(reader)?);
    }
    let otherwise = if reader.take("else") { Some(steps(reader)?) } else { None };
    for word in ["end", "case", ";"] {
        reader.expect(word)?;
    }
    Ok(What::If { branches, otherwise, is_case: true })
}

fn whole_loop(reader: &mut Reader<'_>, label: Option<String>) -> Result<What> {
    let over = if reader.take("while") {
        Over::While(reader.until(&["loop"])?)
    } else if reader.take("for") {
        over(reader)?
    } else {
        Over::Nothing
    };
    reader.expect("loop")?;
    let body = steps(reader)?;
    reader.expect("end")?;
    reader.expect("loop")?;
    end_label(reader, label.as_deref())?;
    reader.expect(";")?;
    Ok(What::Loop { label, over, body })
}

/// Behind FOR.
fn over(reader: &mut Reader<'_>) -> Result<Over> {
    let mut targets = reader.names()?;
    reader.expect("in")?;
    if reader.take("execute") {
        let command = reader.until(&["loop", "using"])?;
        let using = if reader.take("using") { reader.expressions(&["loop"])? } else { Vec::new() };
        return Ok(Over::Execute { targets, command, using });
    }
    let reverse = reader.take("reverse");
    let source = reader.source;
    let pieces = reader.pieces_until(&["loop"])?;
    let (start, end) = (pieces[0].start, pieces[pieces.len() - 1].end());
    match dots(pieces) {
        Some(at) => {
            let variable = targets.remove(0);
            if !targets.is_empty() {
                return Err(SqlError::syntax("integer FOR loop must have only one target variable"));
            }
            let by = pieces.iter().position(|piece| piece.is("by"));
            let to_end = by.map_or(end, |by| pieces[by].start);
            let by = by.map(|by| source[pieces[by].end()..end].trim().to_owned());
            let (from, to) = (source[start..at].trim(), source[at + 2..to_end].trim());
            if from.is_empty() || to.is_empty() || by.as_deref() == Some("") {
                return Err(SqlError::syntax("missing expression at or near \"LOOP\""));
            }
            Ok(Over::Integers { variable, reverse, from: from.to_owned(), to: to.to_owned(), by })
        }
        None if reverse => Err(SqlError::syntax("cannot specify REVERSE in query FOR loop")),
        None => Ok(Over::Query { targets, query: source[start..end].to_owned() }),
    }
}

/// Where `..` stands: two marks, or within what looks like a number (`1..10`).
fn dots(pieces: &[Piece<'_>]) -> Option<usize> {
    let mut open = 0usize;
    for (place, piece) in pieces.iter().enumerate() {
        let next = pieces.get(place + 1);
        match piece.text {
            "(" | "[" => open += 1,
            ")" | "]" => open = open.saturating_sub(1),
            "." if open == 0 && next.is_some_and(|next| next.text.starts_with('.')) => {
                return Some(piece.start);
            }
            text if open == 0
                && piece.kind == Kind::Literal
                && text.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                if let Some(at) = text.find("..") {
                    return Some(piece.start + at);
                }
            }
            _ => {}
        }
    }
    None
}

fn exit(reader: &mut Reader<'_>) -> Result<What> {
    let is_exit = reader.is(0, "exit");
    reader.advance();
    let label = if reader.is(0, "when") || reader.is(0, ";") { None } else { Some(reader.name()?) };
    let when = if reader.take("when") { Some(reader.until(&[";"])?) } else { None };
    reader.expect(";")?;
    Ok(if is_exit { What::Exit { label, when } } else { What::Continue { label, when } })
}

/// Behind INTO.
fn into(reader: &mut Reader<'_>) -> Result<Into> {
    let strict = reader.take("strict");
    let targets = reader.names()?;
    match reader.is(0, ".") || reader.is(0, "[") {
        true => Err(refused("INTO a part of a variable")),
        false => Ok(Into { strict, targets }),
    }
}

fn execute(reader: &mut Reader<'_>) -> Result<What> {
    reader.expect("execute")?;
    let command = reader.until(&[";", "into", "using"])?;
    let (mut target, mut using) = (None, Vec::new());
    loop {
        if target.is_none() && reader.take("into") {
            target = Some(into(reader)?);
        } else if using.is_empty() && reader.take("using") {
            using = reader.expressions(&[";", "into"])?;
        } else {
            reader.expect(";")?;
            return Ok(What::Execute { command, into: target, using });
        }
    }
}

fn diagnostics(reader: &mut Reader<'_>) -> Result<What> {
    let known = [
        ("row_count", Diagnostic::RowCount),
        ("returned_sqlstate", Diagnostic::ReturnedSqlstate),
        ("message_text", Diagnostic::MessageText),
        ("pg_exception_detail", Diagnostic::Detail),
        ("pg_exception_hint", Diagnostic::Hint),
        ("pg_exception_context", Diagnostic::Context),
        ("column_name", Diagnostic::ColumnName),
        ("constraint_name", Diagnostic::ConstraintName),
        ("pg_datatype_name", Diagnostic::DatatypeName),
        ("table_name", Diagnostic::TableName),
        ("schema_name", Diagnostic::SchemaName),
    ];
    reader.expect("get")?;
    let stacked = reader.take("stacked");
    if !stacked {
        reader.take("current");
    }
    reader.expect("diagnostics")?;
    let mut items = Vec::new();
    loop {
        let target = reader.name()?;
        if !reader.take("=") && !reader.take(":=") {
            return Err(reader.error());
        }
        let item = known.iter().find(|(word, _)| reader.is(0, word)).map(|(_, item)| *item);
        let item = item.filter(|item| (*item != Diagnostic::RowCount) == stacked);
        items.push((target, item.ok_or_else(|| SqlError::syntax("unrecognized GET DIAGNOSTICS item"))?));
        reader.advance();
        if !reader.take(",") {
            reader.expect(";")?;
            return Ok(What::Diagnostics(items));
        }
    }
}

/// An SQL statement. Its first INTO that is not that of an INSERT or MERGE is the language's, and
/// is taken out.
fn sql(reader: &mut Reader<'_>) -> Result<What> {
    let source = reader.source;
    let Some(first) = reader.peek(0).copied() else { return Err(reader.error()) };
    if first.text == ";" {
        return Err(reader.error());
    }
    let has_into = ["select", "insert", "update", "delete", "merge", "with", "values", "table", "("];
    let has_into = has_into.iter().any(|word| first.is(word));
    let mut text = String::new();
    let (mut open, mut from, mut last) = (0usize, first.start, first);
    let mut target = None;
    loop {
        let Some(piece) = reader.peek(0).copied() else { return Err(reader.error()) };
        match piece.text {
            ";" if open == 0 => break,
            "(" | "[" => open += 1,
            ")" | "]" => open = open.saturating_sub(1),
            _ => {}
        }
        let is_into = has_into && open == 0 && target.is_none() && piece.is("into");
        if is_into && !last.is("insert") && !last.is("merge") {
            text.push_str(&source[from..piece.start]);
            reader.advance();
            target = Some(into(reader)?);
            from = reader.peek(0).map_or(source.len(), |piece| piece.start);
            continue;
        }
        last = piece;
        reader.advance();
    }
    text.push_str(&source[from..reader.peek(0).map_or(source.len(), |piece| piece.start)]);
    reader.expect(";")?;
    Ok(What::Sql { text: text.trim().to_owned(), into: target })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> What {
        let mut block = read(&format!("BEGIN {text} END")).unwrap();
        assert_eq!(block.body.len(), 1);
        block.body.remove(0).what
    }

    #[test]
    fn statements_end_where_they_do() {
        let What::Sql { text, into } = only("SELECT a, (SELECT 1) INTO STRICT x, y FROM t WHERE b = ';';")
        else {
            panic!("an SQL statement")
        };
        assert_eq!(text, "SELECT a, (SELECT 1) FROM t WHERE b = ';'");
        let into = into.unwrap();
        assert!(into.strict);
        assert_eq!(into.targets, ["x", "y"]);
        let What::Sql { text, into } = only("INSERT INTO t VALUES (1) RETURNING a INTO \"X y\";") else {
            panic!("an SQL statement")
        };
        assert_eq!(text, "INSERT INTO t VALUES (1) RETURNING a");
        assert_eq!(into.unwrap().targets, ["X y"]);
        let What::If { branches, .. } = only("IF CASE WHEN a THEN b END THEN NULL; END IF;") else {
            panic!("an IF")
        };
        assert_eq!(branches[0].0, "CASE WHEN a THEN b END");
    }

    #[test]
    fn loops_over_integers_have_two_dots() {
        for (text, from, to) in [("1..10", "1", "10"), ("a .. b + 1", "a", "b + 1"), ("f(1)..n", "f(1)", "n")]
        {
            let What::Loop { over: Over::Integers { from: first, to: last, by, .. }, .. } =
                only(&format!("FOR i IN {text} BY 2 LOOP NULL; END LOOP;"))
            else {
                panic!("a loop over integers")
            };
            assert_eq!((first.as_str(), last.as_str(), by.as_deref()), (from, to, Some("2")));
        }
        let what = only("FOR r IN SELECT 1.5 FROM t LOOP NULL; END LOOP;");
        assert!(matches!(what, What::Loop { over: Over::Query { .. }, .. }));
    }

    #[test]
    fn lines_are_those_of_the_text() {
        let block = read("\nBEGIN\n  NULL; NULL;\n  /* two\n lines */ NULL;\nEND").unwrap();
        assert_eq!(block.body.iter().map(|step| step.line).collect::<Vec<_>>(), [3, 3, 5]);
        // A long one takes no longer for each line than a short one.
        let long = format!("BEGIN\n{}END", "NULL;\n".repeat(200_000));
        assert_eq!(read(&long).unwrap().body.last().unwrap().line, 200_001);
    }

    #[test]
    fn what_is_none_is_refused() {
        let state = |text: &str| read(text).unwrap_err().sqlstate;
        for text in [
            "",
            "BEGIN",
            "BEGIN NULL END",
            "BEGIN END; x",
            "BEGIN IF a NULL; END IF; END",
            "BEGIN SELECT 1; EXCEPTION END",
            "<<a>> BEGIN END b",
            "BEGIN x := ; END",
            "BEGIN PERFORM (1; END",
        ] {
            assert_eq!(state(text), sqlstate::SYNTAX_ERROR, "{text}");
        }
        assert_eq!(state("BEGIN COMMIT; END"), sqlstate::FEATURE_NOT_SUPPORTED);
        let deep = format!("BEGIN {} NULL; {} END", "BEGIN ".repeat(1000), "END; ".repeat(1000));
        assert_eq!(state(&deep), sqlstate::STATEMENT_TOO_COMPLEX);
        let brackets = format!("DECLARE a int{}; BEGIN END", "[]".repeat(200_000));
        assert_eq!(state(&brackets), sqlstate::STATEMENT_TOO_COMPLEX);
    }
}
