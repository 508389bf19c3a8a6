//! Whether all that a block assigns to is a variable that is there, and may change, and all that it
//! leaves is around. What expressions name is found out when they are run.

use super::{Block, Into, Over, Step, What};
use crate::error::{Result, SqlError};

/// What is seen.
struct Names<'a> {
    /// Variables, the innermost last, and whether they are constants.
    variables: Vec<(&'a str, bool)>,
    /// Blocks and loops around, the innermost last, by their labels, and whether they are loops.
    around: Vec<(Option<&'a str>, bool)>,
}

/// 42601 for what is no variable, and for what is not around; 22005 for a constant.
pub(super) fn check(block: &Block) -> Result<()> {
    Names { variables: vec![("found", false)], around: Vec::new() }.block(block)
}

impl<'a> Names<'a> {
    fn target(&self, name: &str) -> Result<()> {
        match self.variables.iter().rev().find(|(known, _)| *known == name) {
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

    /// EXIT or CONTINUE: what is left, or begun again, is around.
    fn leave(&self, word: &str, label: Option<&str>) -> Result<()> {
        let is_exit = word == "EXIT";
        let mut around = self.around.iter().rev();
        let found = match label {
            Some(label) => around.find(|(known, _)| *known == Some(label)),
            None => around.find(|(_, is_loop)| *is_loop),
        };
        let message = match (label, found) {
            (_, Some((_, is_loop))) if *is_loop || is_exit => return Ok(()),
            (Some(label), Some(_)) => format!("block label \"{label}\" cannot be used in CONTINUE"),
            (Some(label), None) => format!(
                "there is no label \"{label}\" attached to any block or loop enclosing this statement"
            ),
            (None, _) if is_exit => "EXIT cannot be used outside a loop, unless it has a label".to_owned(),
            (None, _) => "CONTINUE cannot be used outside a loop".to_owned(),
        };
        Err(SqlError::syntax(message))
    }

    fn block(&mut self, block: &'a Block) -> Result<()> {
        let outer = self.variables.len();
        for declaration in &block.variables {
            if self.variables[outer..].iter().any(|(known, _)| *known == declaration.name) {
                return Err(SqlError::syntax(format!(
                    "duplicate declaration at or near \"{}\"",
                    declaration.name
                )));
            }
            self.variables.push((&declaration.name, declaration.constant));
        }
        self.around.push((block.label.as_deref(), false));
        self.steps(&block.body)?;
        self.variables.extend([("sqlstate", true), ("sqlerrm", true)]);
        for handler in &block.handlers {
            self.steps(&handler.body)?;
        }
        self.around.pop();
        self.variables.truncate(outer);
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
            What::Loop { label, over, body } => {
                let outer = self.variables.len();
                match over {
                    Over::Nothing | Over::While(_) => {}
                    Over::Integers { variable, .. } => self.variables.push((variable, false)),
                    Over::Query { targets, .. } | Over::Execute { targets, .. } => {
                        targets.iter().try_for_each(|name| self.target(name))?;
                    }
                }
                self.around.push((label.as_deref(), true));
                self.steps(body)?;
                self.around.pop();
                self.variables.truncate(outer);
                Ok(())
            }
            What::Exit { label, .. } => self.leave("EXIT", label.as_deref()),
            What::Continue { label, .. } => self.leave("CONTINUE", label.as_deref()),
            What::Null | What::Perform(_) | What::Return | What::Raise(_) => Ok(()),
        }
    }
}
