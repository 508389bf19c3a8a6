//! Aggregates over frames.
//!
//! The accumulator holds the rows of a range whose ends move forward with the frame. Rows that the frame leaves behind are taken back where the aggregate can do
//! that exactly; else, and where EXCLUDE makes holes, it begins anew.

use super::frame::{Partition, Place};
use crate::bind::{Exclusion, Frame, FrameBound, WindowCall};
use crate::error::{Result, SqlError};
use crate::expr::{Env, Expr};
use crate::function::Accumulator;
use crate::oltp::Context;
use crate::types::Datum;

/// State of an aggregate over frames.
pub(super) struct Running {
    accumulator: Option<Box<dyn Accumulator>>,
    /// The rows that it holds.
    from: usize,
    upto: usize,
    /// The result for these rows, once it was asked for.
    result: Option<Datum>,
    /// Arguments and filter give the same again, so rows can be taken back.
    repeatable: bool,
    /// The frame has holes.
    has_holes: bool,
}

impl Running {
    pub(super) fn new(call: &WindowCall, frame: &Frame) -> Running {
        let once =
            |expr: &Expr| expr.is_volatile() || expr.any(&mut |inner| matches!(inner, Expr::Subquery(_)));
        Running {
            accumulator: None,
            from: 0,
            upto: 0,
            result: None,
            repeatable: !call.arguments.iter().chain(&call.filter).any(once),
            has_holes: frame.exclusion != Exclusion::None,
        }
    }

    /// Whether rows before the current one may be looked at.
    pub(super) fn looks_back(frame: &Frame) -> bool {
        frame.exclusion != Exclusion::None
            || frame.start != FrameBound::Unbounded
            || matches!(frame.end, FrameBound::Preceding(_))
    }

    /// Bytes the accumulator holds.
    pub(super) fn held(&self) -> usize {
        self.accumulator.as_ref().map_or(0, |accumulator| accumulator.memory())
    }

    /// Begins anew at a row.
    fn restart(&mut self, call: &WindowCall, at: usize) -> Result<()> {
        let accumulator = call.function.accumulator();
        let unknown = || SqlError::internal(format!("{} is no aggregate", call.function.function.name));
        self.accumulator = Some(accumulator.ok_or_else(unknown)?);
        (self.from, self.upto) = (at, at);
        self.result = None;
        Ok(())
    }

    /// A partition begins.
    pub(super) fn begin(&mut self, call: &WindowCall) -> Result<()> {
        self.restart(call, 0)
    }

    /// The aggregate over the frame around a row.
    pub(super) fn result(
        &mut self,
        call: &WindowCall,
        partition: &Partition,
        place: &Place,
        context: Context<'_>,
    ) -> Result<Datum> {
        let (head, tail) = place.frame;
        if self.has_holes {
            self.restart(call, head)?;
            for (from, to) in place.ranges() {
                self.add(call, partition, from, to, context)?;
            }
            return self.value(context);
        }
        if head > self.from {
            self.leave(call, partition, head, context)?;
        }
        if tail > self.upto {
            self.add(call, partition, self.upto, tail, context)?;
            self.upto = tail;
        }
        if let Some(result) = &self.result {
            return Ok(result.clone());
        }
        let result = self.value(context)?;
        self.result = Some(result.clone());
        Ok(result)
    }

    fn value(&self, context: Context<'_>) -> Result<Datum> {
        match &self.accumulator {
            Some(accumulator) => accumulator.result(&context.execution.read.eval),
            None => Err(SqlError::internal("an aggregate over no partition")),
        }
    }

    fn add(
        &mut self,
        call: &WindowCall,
        partition: &Partition,
        from: usize,
        to: usize,
        context: Context<'_>,
    ) -> Result<()> {
        let Some(accumulator) = &mut self.accumulator else { return Ok(()) };
        for row in &partition.rows[from..to.max(from)] {
            context.execution.tick()?;
            let env = context.env(row);
            if let Some(arguments) = arguments(call, &env)? {
                accumulator.add(&arguments, &context.execution.read.eval)?;
                self.result = None;
            }
        }
        Ok(())
    }

    /// Takes back the rows before `head`, or begins anew there.
    fn leave(
        &mut self,
        call: &WindowCall,
        partition: &Partition,
        head: usize,
        context: Context<'_>,
    ) -> Result<()> {
        if head >= self.upto || !self.repeatable {
            return self.restart(call, head);
        }
        let Some(accumulator) = &mut self.accumulator else { return Ok(()) };
        for row in &partition.rows[self.from..head] {
            context.execution.tick()?;
            let env = context.env(row);
            if let Some(arguments) = arguments(call, &env)? {
                self.result = None;
                if !accumulator.remove(&arguments)? {
                    return self.restart(call, head);
                }
            }
        }
        self.from = head;
        Ok(())
    }
}

/// The arguments of a row; none if the filter leaves it out.
fn arguments(call: &WindowCall, env: &Env<'_>) -> Result<Option<smallvec::SmallVec<[Datum; 2]>>> {
    if let Some(filter) = &call.filter
        && !filter.test(env)?
    {
        return Ok(None);
    }
    let mut arguments = smallvec::SmallVec::new();
    for argument in &call.arguments {
        arguments.push(argument.eval(env)?);
    }
    Ok(Some(arguments))
}
