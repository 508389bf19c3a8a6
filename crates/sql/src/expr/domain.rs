//! What the values of a domain must meet.
//!
//! The conditions are bound over a frame of one place, VALUE. Those of the domain under a domain
//! come first, as PostgreSQL checks them; NULL is refused before all of them.

use std::sync::Arc;

use super::{Env, Execution, Expr, ReadContext, Runtime};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::Datum;

/// The constraints of a domain and of those under it, ready to be tested.
#[derive(Debug)]
pub(crate) struct DomainCheck {
    /// Schema and name of the domain.
    pub(crate) schema: String,
    pub(crate) name: String,
    /// The name as messages show it.
    pub(crate) shown: String,
    pub(crate) not_null: bool,
    /// Names and conditions.
    pub(crate) constraints: Vec<(String, Expr)>,
    /// What each element must meet, where values are arrays of a domain.
    pub(crate) elements: Option<Arc<DomainCheck>>,
}

/// A value that becomes one of a domain.
#[derive(Clone, Debug)]
pub struct DomainValue {
    pub(crate) operand: Expr,
    pub(crate) check: Arc<DomainCheck>,
}

impl PartialEq for DomainValue {
    fn eq(&self, other: &DomainValue) -> bool {
        Arc::ptr_eq(&self.check, &other.check) && self.operand == other.operand
    }
}

impl DomainValue {
    /// The value, once it is known to be one of the domain.
    pub(super) fn eval(&self, env: &Env<'_>) -> Result<Datum> {
        let value = self.operand.eval(env)?;
        self.check.test(&value, env.execution.read)?;
        Ok(value)
    }
}

impl DomainCheck {
    /// Whether every value of the type under it meets it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.not_null && self.constraints.is_empty() && self.elements.is_none()
    }

    /// 23502 for NULL where it is refused, 23514 for a value that does not meet a constraint.
    pub(crate) fn test(&self, value: &Datum, read: &ReadContext<'_>) -> Result<()> {
        if let (Some(check), Datum::Array(array)) = (&self.elements, value) {
            for element in &array.elements {
                read.interrupt.check()?;
                check.test(element, read)?;
            }
        }
        if self.not_null && value.is_null() {
            let message = format!("domain {} does not allow null values", self.shown);
            return Err(self.named(SqlError::new(sqlstate::NOT_NULL_VIOLATION, message)));
        }
        if self.constraints.is_empty() {
            return Ok(());
        }
        let runtime = Runtime::default();
        let env =
            Env::new(std::slice::from_ref(value), Execution { read, parameters: &[], runtime: &runtime });
        for (name, condition) in &self.constraints {
            // NULL passes.
            if condition.eval(&env)?.as_bool() == Some(false) {
                let message = format!("value for domain {} violates check constraint \"{name}\"", self.shown);
                let error = self.named(SqlError::new(sqlstate::CHECK_VIOLATION, message));
                return Err(error.with_constraint(name));
            }
        }
        Ok(())
    }

    fn named(&self, error: SqlError) -> SqlError {
        error.with_data_type(&self.schema, &self.name)
    }
}
