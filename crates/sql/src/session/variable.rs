//! SET, SHOW, RESET and DISCARD.

use sqlparser::ast;

use super::maintenance::require_alone;
use super::modes::{isolation_name, isolation_of};
use super::portal::{PortalState, Tag};
use super::{Block, CommandTag, OutputColumn, Session, Statement};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::types::{Datum, Type, TypeId};

/// The name of a setting as SHOW and SET spell it: `TIME ZONE` and the like are words of their own.
fn variable_name(words: &[ast::Ident]) -> String {
    let parts: Vec<String> = words.iter().map(|word| word.value.to_lowercase()).collect();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["time", "zone"] => "timezone".to_owned(),
        ["transaction", "isolation", "level"] => "transaction_isolation".to_owned(),
        ["session", "authorization"] => "session_authorization".to_owned(),
        _ => parts.join("."),
    }
}

/// A value of SET as text.
fn value_text(value: &ast::Expr) -> Result<String> {
    match value {
        ast::Expr::Identifier(ident) if ident.quote_style.is_none() => Ok(ident.value.to_ascii_lowercase()),
        ast::Expr::Identifier(ident) => Ok(ident.value.clone()),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text)
            | ast::Value::EscapedStringLiteral(text)
            | ast::Value::DoubleQuotedString(text) => Ok(text.clone()),
            ast::Value::DollarQuotedString(text) => Ok(text.value.clone()),
            ast::Value::Number(number, _) => Ok(number.clone()),
            ast::Value::Boolean(value) => Ok(value.to_string()),
            other => Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => Ok(format!("-{}", value_text(expr)?)),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Plus, expr } => value_text(expr),
        ast::Expr::Interval(interval) => Ok(format!("INTERVAL '{}'", value_text(&interval.value)?)),
        ast::Expr::CompoundIdentifier(parts) => {
            Ok(parts.iter().map(|part| part.value.clone()).collect::<Vec<_>>().join("."))
        }
        other => Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
    }
}

/// A list of values as one text: names that were quoted stay quoted.
pub(super) fn list_text(name: &str, values: &[ast::Expr]) -> Result<Option<String>> {
    if let [ast::Expr::Identifier(ident)] = values
        && ident.quote_style.is_none()
        && ident.value.eq_ignore_ascii_case("default")
    {
        return Ok(None);
    }
    let is_names = name == "search_path";
    let mut texts = Vec::with_capacity(values.len());
    for value in values {
        let text = value_text(value)?;
        let folded = matches!(value, ast::Expr::Identifier(ident) if ident.quote_style.is_none());
        texts.push(match (is_names, folded) {
            (true, true) => text.to_ascii_lowercase(),
            // A string is one name, not a list of them.
            (true, false) if text.is_empty() && values.len() == 1 => "\"\"".to_owned(),
            (true, false) => format!("\"{}\"", text.replace('"', "\"\"")),
            _ => text,
        });
    }
    Ok(Some(texts.join(", ")))
}

/// 42601 for what is no value of a setting, such as a parameter. It is told when the
/// statement is prepared.
pub(super) fn check_values(set: &ast::Set) -> Result<()> {
    let values = match set {
        ast::Set::SingleAssignment { values, .. } => values.as_slice(),
        ast::Set::SetTimeZone { value, .. } => std::slice::from_ref(value),
        _ => &[],
    };
    values.iter().try_for_each(|value| value_text(value).map(drop))
}

impl Session {
    /// SET.
    pub(super) fn set(&mut self, set: &ast::Set, statement: &Statement) -> Result<()> {
        use ast::Set;
        let deferrable = statement.deferrable;
        if is_local(set) && !self.shares_block(statement) {
            self.notices.push(SqlError::warning(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "SET LOCAL can only be used in transaction blocks",
            ));
        }
        match set {
            Set::SingleAssignment { scope, variable, values, .. } => {
                let name = super::variable::object_name(variable)?;
                let local = matches!(scope, Some(ast::ContextModifier::Local));
                let value = list_text(&name, values)?;
                self.set_variable(&name, value.as_deref(), local)
            }
            Set::SetTimeZone { local, value } => {
                let value = list_text("timezone", std::slice::from_ref(value))?;
                let value = value.filter(|value| !value.eq_ignore_ascii_case("local"));
                self.set_variable("timezone", value.as_deref(), *local)
            }
            Set::SetNames { charset_name, .. } => {
                self.set_variable("client_encoding", Some(&charset_name.value), false)
            }
            Set::SetNamesDefault {} => self.set_variable("client_encoding", None, false),
            Set::SetTransaction { snapshot: Some(name), .. } => self.borrow_snapshot(&name.value),
            Set::SetTransaction { modes, session: true, .. } => {
                if let Some(deferrable) = deferrable {
                    let value = if deferrable { "on" } else { "off" };
                    self.set_variable("default_transaction_deferrable", Some(value), false)?;
                }
                self.set_characteristics(modes)
            }
            Set::SetTransaction { modes, .. } => self.set_transaction(modes, statement),
            Set::SetRole { role_name, context_modifier } => {
                let local = matches!(context_modifier, Some(ast::ContextModifier::Local));
                let name = role_name.as_ref().map_or_else(|| "none".to_owned(), fold);
                self.set_variable("role", Some(&name), local)
            }
            Set::SetSessionAuthorization(given) => {
                let local = given.scope == ast::ContextModifier::Local;
                let name = match &given.kind {
                    ast::SetSessionAuthorizationParamKind::Default => None,
                    ast::SetSessionAuthorizationParamKind::User(name) => Some(fold(name)),
                };
                self.set_variable("session_authorization", name.as_deref(), local)
            }
            other => Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
        }
    }

    fn set_characteristics(&mut self, modes: &[ast::TransactionMode]) -> Result<()> {
        for mode in modes {
            match mode {
                ast::TransactionMode::AccessMode(mode) => {
                    let read_only = matches!(mode, ast::TransactionAccessMode::ReadOnly);
                    let value = if read_only { "on" } else { "off" };
                    self.set_variable("default_transaction_read_only", Some(value), false)?;
                }
                ast::TransactionMode::IsolationLevel(level) => {
                    let level = level.to_string().to_lowercase();
                    self.set_variable("default_transaction_isolation", Some(&level), false)?;
                }
            }
        }
        Ok(())
    }

    /// One variable; `None` is DEFAULT.
    fn set_variable(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        if self.database.catalog().has_roles() {
            // Who may set what is asked of the present catalog.
            let (catalog, _) = self.catalog_with_state();
            self.facts.set_catalog(&catalog);
        }
        match name {
            "transaction_isolation" => {
                let level = value.unwrap_or(&self.effective.default_isolation).to_lowercase();
                // Checks the name.
                self.facts.with_settings(|settings| settings.clone().set(name, Some(&level), true))?;
                return self.set_isolation(isolation_of(&level));
            }
            "transaction_read_only" => {
                let text = value.unwrap_or("off");
                self.facts.with_settings(|settings| settings.clone().set(name, Some(text), true))?;
                return self.set_read_only(super::settings::parse_bool(text) == Some(true));
            }
            "transaction_deferrable" => {
                let text = value.unwrap_or("off");
                self.facts.with_settings(|settings| settings.clone().set(name, Some(text), true))?;
                return self.set_deferrable(Some(super::settings::parse_bool(text) == Some(true)));
            }
            "cognate.retry_of" => {
                let text = value.unwrap_or_default();
                if self.open.is_some() && self.block == Block::Explicit {
                    return Err(SqlError::new(
                        sqlstate::ACTIVE_SQL_TRANSACTION,
                        "cognate.retry_of must be set before any query",
                    ));
                }
                check_retry_of(text)?;
            }
            _ if self.facts.set_server_setting(name, value)? => return Ok(()),
            _ if self.facts.set_identity(name, value, local)? => {
                self.refresh_settings();
                return Ok(());
            }
            _ => {}
        }
        self.facts.check_may_set(name)?;
        self.facts.with_settings(|settings| settings.set(name, value, local))?;
        self.refresh_settings();
        Ok(())
    }

    /// RESET.
    pub(super) fn reset(&mut self, reset: &ast::Reset) -> Result<()> {
        match reset {
            ast::Reset::ALL => {
                self.facts.with_settings(super::settings::Settings::reset_all);
                self.refresh_settings();
                Ok(())
            }
            ast::Reset::ConfigurationParameter(name) => {
                let name = object_name(name)?;
                self.set_variable(&name, None, false)
            }
        }
    }

    /// DISCARD. 25001 for ALL that is not `alone` in its transaction.
    pub(super) async fn discard(&mut self, what: &ast::DiscardObject, alone: bool) -> Result<&'static str> {
        match what {
            ast::DiscardObject::ALL => {
                require_alone(alone, "DISCARD ALL")?;
                self.set_variable("session_authorization", None, false)?;
                self.reset(&ast::Reset::ALL)?;
                self.statements.clear();
                self.own_plans.clear();
                self.cursors.clear();
                self.facts.forget_sequences();
                self.facts.advisory.release_session(self.database.advisory());
                self.unlisten(None)?;
                self.discard_temporary().await?;
                Ok("DISCARD ALL")
            }
            ast::DiscardObject::PLANS => Ok("DISCARD PLANS"),
            ast::DiscardObject::SEQUENCES => {
                self.commits += 1;
                self.facts.forget_sequences();
                Ok("DISCARD SEQUENCES")
            }
            ast::DiscardObject::TEMP => {
                self.discard_temporary().await?;
                Ok("DISCARD TEMP")
            }
        }
    }

    /// The columns of SHOW. 42704.
    pub(super) fn show_columns(&self, variable: &[ast::Ident]) -> Result<Vec<OutputColumn>> {
        let text = |name: String| OutputColumn {
            name,
            ty: Type::new(TypeId::Text),
            table_oid: 0,
            attribute_number: 0,
        };
        let name = variable_name(variable);
        if name == "all" {
            return Ok(["name", "setting", "description"].map(|name| text(name.to_owned())).to_vec());
        }
        let canonical = self.facts.with_settings(|settings| settings.canonical_name(&name))?;
        Ok(vec![text(canonical)])
    }

    /// SHOW.
    pub(super) fn show(&self, variable: &[ast::Ident]) -> Result<PortalState> {
        let name = variable_name(variable);
        let rows = if name == "all" {
            let all = self.facts.with_settings(|settings| settings.all());
            let row = |(definition, value): (&super::settings::Definition, String)| {
                let value = self.facts.server_setting(definition.name).unwrap_or(value);
                vec![Datum::from(definition.name), Datum::from(value), Datum::from("")]
            };
            all.into_iter().map(row).collect()
        } else {
            vec![vec![Datum::from(self.variable(&name)?)]]
        };
        let tag = Tag::Fixed(CommandTag::Plain("SHOW"));
        Ok(PortalState::Rows { rows: rows.into_iter(), sent: 0, tag })
    }

    /// A variable's value: the transaction's own are not among the settings.
    pub(super) fn variable(&self, name: &str) -> Result<String> {
        // A message of several statements has a transaction, too.
        let in_transaction = self.block != Block::None;
        match name {
            "transaction_isolation" if in_transaction => Ok(isolation_name(self.modes.isolation).to_owned()),
            "transaction_isolation" => Ok(self.effective.default_isolation.clone()),
            "transaction_read_only" => {
                let read_only =
                    if in_transaction { self.modes.read_only } else { self.effective.default_read_only };
                Ok(if read_only { "on" } else { "off" }.to_owned())
            }
            "transaction_deferrable" => {
                let deferrable =
                    if in_transaction { self.modes.deferrable } else { self.effective.default_deferrable };
                Ok(if deferrable { "on" } else { "off" }.to_owned())
            }
            _ => match self.facts.server_setting(name) {
                Some(limit) => Ok(limit),
                None => self.facts.with_settings(|settings| settings.show(name)),
            },
        }
    }
}

/// SET LOCAL, which outside a block has no effect but a warning.
fn is_local(set: &ast::Set) -> bool {
    let is_local = |scope: &Option<ast::ContextModifier>| matches!(scope, Some(ast::ContextModifier::Local));
    match set {
        ast::Set::SingleAssignment { scope, .. } => is_local(scope),
        ast::Set::SetTimeZone { local, .. } => *local,
        ast::Set::SetRole { context_modifier, .. } => is_local(context_modifier),
        ast::Set::SetSessionAuthorization(given) => given.scope == ast::ContextModifier::Local,
        _ => false,
    }
}

/// 22023 for what is no value of `cognate.retry_of`.
pub(super) fn check_retry_of(text: &str) -> Result<()> {
    if text.is_empty() || text.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(SqlError::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"cognate.retry_of\": \"{text}\""),
    )
    .with_hint(format!("It is the id of a transaction: a number from 1 to {}.", u64::MAX)))
}

/// A setting's dotted name.
pub(super) fn object_name(name: &ast::ObjectName) -> Result<String> {
    let words: Vec<ast::Ident> = name
        .0
        .iter()
        .filter_map(|part| match part {
            ast::ObjectNamePart::Identifier(ident) => Some(ident.clone()),
            ast::ObjectNamePart::Function(_) => None,
        })
        .collect();
    Ok(variable_name(&words))
}
