//! Windows: what OVER says, bound.

use crate::expr::Expr;
use crate::function::ResolvedFunction;
use crate::types::Type;

/// A window: how the rows of a level are split and sorted, which of them a row looks at, and the
/// calls that do so.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Its name, if the WINDOW clause gave it one.
    pub name: Option<String>,
    /// PARTITION BY, over the (group's) frame.
    pub partition: Vec<Expr>,
    /// ORDER BY: expression, descending, NULLs first.
    pub order: Vec<(Expr, bool, bool)>,
    /// Type of the first key of ORDER BY.
    pub order_type: Option<Type>,
    /// The rows around the current one.
    pub frame: Frame,
    /// The calls over it.
    pub calls: Vec<WindowCall>,
}

/// A call with OVER.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// A window function or an aggregate.
    pub function: ResolvedFunction,
    /// Arguments, over the (group's) frame.
    pub arguments: Vec<Expr>,
    /// FILTER, of an aggregate.
    pub filter: Option<Expr>,
    /// Place of the result, counted from the end of the (group's) frame.
    pub place: usize,
}

/// The frame clause. The default is `RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// The statement says what the frame is.
    pub is_explicit: bool,
    /// What its ends count.
    pub mode: FrameMode,
    /// The first row.
    pub start: FrameBound,
    /// The last row.
    pub end: FrameBound,
    /// What is left out around the current row.
    pub exclusion: Exclusion,
}

/// What the ends of a frame count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameMode {
    /// Rows.
    Rows,
    /// Distance of the only sort key's values; `CURRENT ROW` is all rows that sort alike.
    #[default]
    Range,
    /// Groups of rows that sort alike.
    Groups,
}

/// One end of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FrameBound {
    /// The partition's first row as a start, its last as an end.
    Unbounded,
    /// So far before the current row.
    Preceding(Expr),
    /// The current row, or those that sort alike.
    #[default]
    Current,
    /// So far after the current row.
    Following(Expr),
}

impl FrameBound {
    /// The offset, if there is one.
    pub fn offset(&self) -> Option<&Expr> {
        match self {
            FrameBound::Preceding(offset) | FrameBound::Following(offset) => Some(offset),
            FrameBound::Unbounded | FrameBound::Current => None,
        }
    }

    /// The same, to change it.
    pub fn offset_mut(&mut self) -> Option<&mut Expr> {
        match self {
            FrameBound::Preceding(offset) | FrameBound::Following(offset) => Some(offset),
            FrameBound::Unbounded | FrameBound::Current => None,
        }
    }
}

/// EXCLUDE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclusion {
    /// NO OTHERS.
    #[default]
    None,
    /// CURRENT ROW.
    CurrentRow,
    /// GROUP: the current row and those that sort alike.
    Group,
    /// TIES: those that sort alike, but not the current row itself.
    Ties,
}

impl Frame {
    /// The frame of a window without a frame clause.
    pub(crate) fn standard() -> Frame {
        Frame { start: FrameBound::Unbounded, ..Frame::default() }
    }

    /// Whether an end is told by the distance of sort keys.
    pub(crate) fn is_by_distance(&self) -> bool {
        self.mode == FrameMode::Range && (self.start.offset().is_some() || self.end.offset().is_some())
    }
}

/// The traversal of a window's expressions, for shared and for exclusive references.
macro_rules! window_exprs {
    ($window:ident, $visit:ident, $iter:ident, $offset:ident, [$($mutable:tt)?]) => {
        $window.partition.$iter().for_each(|expr| $visit(expr));
        for key in $window.order.$iter() {
            $visit(& $($mutable)? key.0);
        }
        $window.frame.start.$offset().into_iter().for_each(|expr| $visit(expr));
        $window.frame.end.$offset().into_iter().for_each(|expr| $visit(expr));
        for call in $window.calls.$iter() {
            call.arguments.$iter().for_each(|expr| $visit(expr));
            call.filter.$iter().for_each(|expr| $visit(expr));
        }
    };
}

impl Window {
    /// Calls `visit` with each expression.
    pub fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        window_exprs!(self, visit, iter, offset, []);
    }

    /// The same, to change them.
    pub fn for_each_expr_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Expr)) {
        window_exprs!(self, visit, iter_mut, offset_mut, [mut]);
    }

    /// The keys its rows are sorted by: those of PARTITION BY, then of ORDER BY that are not among
    /// them, each with its direction.
    pub(crate) fn sort_keys(&self) -> Vec<(&Expr, bool, bool)> {
        let mut keys: Vec<(&Expr, bool, bool)> = vec![];
        let partition = self.partition.iter().map(|expr| (expr, false, false));
        for key in partition.chain(self.order.iter().map(|(expr, desc, first)| (expr, *desc, *first))) {
            if !keys.iter().any(|known| known.0 == key.0) {
                keys.push(key);
            }
        }
        keys
    }
}
