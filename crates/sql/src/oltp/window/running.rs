//! Aggregates over frames.
//!
//! The accumulator holds the rows of a range whose ends move forward with the frame. Rows that the
//! frame leaves behind are taken back where the aggregate can do that exactly; else, and where
//! EXCLUDE makes holes, it begins anew.
//!
//! Of a smallest or largest value (`Extremes`) only those values are kept that can still become the
//! result: of 3 1 2 for `min`, once 3 has been left behind by 1, 1 and 2. Each value comes and goes
//! once, so a moving frame takes no longer than a growing one.

use std::collections::VecDeque;

use super::frame::{Partition, Place};
use crate::bind::{Exclusion, Frame, FrameBound, WindowCall};
use crate::error::{Result, SqlError};
use crate::expr::{Env, Expr};
use crate::function::{Accumulator, Successor};
use crate::oltp::Context;
use crate::oltp::memory::datum_bytes;
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
    /// Of a moving frame, in the place of the accumulator.
    extremes: Option<Extremes>,
    /// Bytes that accumulators before have held at most.
    most: usize,
}

/// The values of the rows that can become the result, the present one first, with the places of
/// their rows.
struct Extremes {
    successor: Successor,
    values: VecDeque<(usize, Datum)>,
    bytes: usize,
}

impl Extremes {
    fn add(&mut self, at: usize, value: Datum) {
        if value.is_null() {
            return;
        }
        while let Some((_, last)) = self.values.back()
            && (self.successor)(last, &value)
        {
            self.values.pop_back();
        }
        self.bytes = self.bytes.max((self.values.len() + 1) * (size_of::<usize>() + datum_bytes(&value)));
        self.values.push_back((at, value));
    }

    /// The rows before `head` go.
    fn leave(&mut self, head: usize) {
        while self.values.front().is_some_and(|(at, _)| *at < head) {
            self.values.pop_front();
        }
    }

    fn result(&self) -> Datum {
        self.values.front().map_or(Datum::Null, |(_, value)| value.clone())
    }
}

impl Running {
    pub(super) fn new(call: &WindowCall, frame: &Frame) -> Running {
        let once = |expr: &Expr| expr.is_volatile() || expr.has_subquery();
        let has_holes = frame.exclusion != Exclusion::None;
        let successor = call.function.accumulator().and_then(|accumulator| accumulator.successor());
        let moves = !has_holes && frame.start != FrameBound::Unbounded;
        let extremes = successor.filter(|_| moves).map(|successor| Extremes {
            successor,
            values: VecDeque::new(),
            bytes: 0,
        });
        Running {
            accumulator: None,
            from: 0,
            upto: 0,
            result: None,
            repeatable: !call.arguments.iter().chain(&call.filter).any(once),
            has_holes,
            extremes,
            most: 0,
        }
    }

    /// Whether rows before the current one may be looked at.
    pub(super) fn looks_back(frame: &Frame) -> bool {
        frame.exclusion != Exclusion::None
            || frame.start != FrameBound::Unbounded
            || matches!(frame.end, FrameBound::Preceding(_))
    }

    /// Bytes the accumulator holds, or has held at most since the partition began.
    pub(super) fn held(&self) -> usize {
        match &self.extremes {
            Some(extremes) => extremes.bytes,
            None => self.accumulator.as_ref().map_or(0, |accumulator| accumulator.memory()).max(self.most),
        }
    }

    /// Begins anew at a row.
    fn restart(&mut self, call: &WindowCall, at: usize) -> Result<()> {
        let accumulator = call.function.accumulator();
        let unknown = || SqlError::internal(format!("{} is no aggregate", call.function.function.name));
        self.most = self.held();
        self.accumulator = Some(accumulator.ok_or_else(unknown)?);
        (self.from, self.upto) = (at, at);
        self.result = None;
        if let Some(extremes) = &mut self.extremes {
            extremes.values.clear();
        }
        Ok(())
    }

    /// A partition begins.
    pub(super) fn begin(&mut self, call: &WindowCall) -> Result<()> {
        if let Some(extremes) = &mut self.extremes {
            extremes.bytes = 0;
        }
        (self.accumulator, self.most) = (None, 0);
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
        if let Some(extremes) = &self.extremes {
            return Ok(extremes.result());
        }
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
        for at in from..to {
            context.execution.tick()?;
            let row = partition.rows.row(at)?;
            let env = context.env(&row);
            let Some(mut arguments) = arguments(call, &env)? else { continue };
            self.result = None;
            match &mut self.extremes {
                Some(extremes) => extremes.add(at, std::mem::take(&mut arguments[0])),
                None => accumulator.add(&arguments, &context.execution.read.eval)?,
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
        if let Some(extremes) = &mut self.extremes {
            extremes.leave(head);
            (self.from, self.result) = (head, None);
            return Ok(());
        }
        let Some(accumulator) = &mut self.accumulator else { return Ok(()) };
        for at in self.from..head {
            context.execution.tick()?;
            let row = partition.rows.row(at)?;
            let env = context.env(&row);
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
