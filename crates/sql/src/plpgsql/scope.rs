//! Whether all that a block assigns to is a variable that is there, and may change. What
//! expressions name is found out when they are run.

use super::{Block, Into, Over, Step, What};
use crate::error::{Result, SqlError};

/// The names that are seen, the innermost last, and whether they are constants.
#[derive(Default)]
struct Names<'a>(Vec<(&'a str, bool)>);

/// 42601 for what is no variable, 22005 for a constant.
pub(super) fn check(block: &Block) -> Result<()> {
    Names::default().block(block)
}

impl<'a> Names<'a> {
    fn target(&self, name: &str) -> Result<()> {
        match self.0.iter().rev().find(|(known, _)| *known == name) {
            Some((_, false)) => Ok(()),
            Some((_, true)) => {
                Err(SqlError::new("22005", format!("variable \"{name}\" is declared CONSTANT")))
            }
            None => Err(SqlError::syntax(format!("\"{name}\" is not a known variable"))),
        }
    }

    fn targets(&self, into: Option<&Into>) -> Result<()> {
        into.map_or(&[][..], |into| &into.targets).iter().try_for_each(|name| self.target(name))
    }

    fn block(&mut self, block: &'a Block) -> Result<()> {
        let outer = self.0.len();
        for declaration in &block.variables {
            if self.0[outer..].iter().any(|(known, _)| *known == declaration.name) {
                return Err(SqlError::syntax(format!(
                    "duplicate declaration at or near \"{}\"",
                    declaration.name
                )));
            }
            self.0.push((&declaration.name, declaration.constant));
        }
        self.steps(&block.body)?;
        for handler in &block.handlers {
            self.steps(&handler.body)?;
        }
        self.0.truncate(outer);
        Ok(())
    }

    fn steps(&mut self, steps: &'a [Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(&step.what))
    }

    fn step(&mut self, what: &'a What) -> Result<()> {
        match what {
            What::Block(block) => self.block(block),
            What::Sql { into, .. } | What::Execute { into, .. } => self.targets(into.as_ref()),
            What::Assign { target, .. } => self.target(target),
            What::Diagnostics(items) => items.iter().try_for_each(|(name, _)| self.target(name)),
            What::If { branches, otherwise, .. } => {
                branches.iter().try_for_each(|(_, steps)| self.steps(steps))?;
                otherwise.as_ref().map_or(Ok(()), |steps| self.steps(steps))
            }
            What::Loop { over, body, .. } => {
                let outer = self.0.len();
                match over {
                    Over::Nothing | Over::While(_) => {}
                    Over::Integers { variable, .. } => self.0.push((variable, false)),
                    Over::Query { targets, .. } | Over::Execute { targets, .. } => {
                        targets.iter().try_for_each(|name| self.target(name))?;
                    }
                }
                self.steps(body)?;
                self.0.truncate(outer);
                Ok(())
            }
            What::Null
            | What::Perform(_)
            | What::Exit { .. }
            | What::Continue { .. }
            | What::Return
            | What::Raise(_) => Ok(()),
        }
    }
}
