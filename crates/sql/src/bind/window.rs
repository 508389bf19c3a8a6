//! Calls with OVER, and the WINDOW clause.
//!
//! A call's result takes a place behind the (group's) frame; while binding it is
//! [`Expr::WindowResult`]. Windows that are written twice alike are one, so that their rows are
//! sorted once. So are calls over one window, unless they give another result each time.

use sqlparser::ast::{
    DuplicateTreatment, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, FunctionArguments, NamedWindowDefinition, NamedWindowExpr,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use super::call::plain_arguments;
use super::frame::{Exclusion, Frame, FrameBound, FrameMode, Window, WindowCall};
use super::order::sort_direction;
use super::scope::object_name;
use super::{Binder, Clause};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed, same};
use crate::function::{self, Kind, ResolvedFunction};
use crate::parse::exclusion_of;
use crate::types::cast::CastContext;
use crate::types::{Type, TypeId};

impl Binder<'_> {
    /// A call with OVER.
    pub(super) fn window_function(
        &mut self,
        schema: Option<&str>,
        name: &str,
        syntax: &FunctionSyntax,
    ) -> Result<Typed> {
        let FunctionArguments::List(list) = &syntax.args else {
            return Err(SqlError::syntax("syntax error at or near \"OVER\""));
        };
        let wildcard = matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        let arguments = if wildcard { vec![] } else { plain_arguments(&list.args)? };
        let arguments =
            arguments.iter().map(|argument| self.expression(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let function = function::resolve(schema, name, &types);
        let function = function.map_err(|error| self.name_types(error, &types))?;
        check_call(name, &function, syntax, list, wildcard)?;
        self.check_window_allowed()?;
        let arguments = self.convert_arguments(arguments, &function)?;
        for argument in &arguments {
            if argument.any(&mut |expr| matches!(expr, Expr::SetResult(_))) {
                return Err(not_implemented(
                    "window function calls cannot contain set-returning function calls",
                )
                .with_hint(
                    "You might be able to move the set-returning function into a LATERAL FROM item.",
                ));
            }
            if argument.any(&mut |expr| matches!(expr, Expr::WindowResult(_))) {
                return Err(windowing("window function calls cannot be nested"));
            }
        }
        let filter = self.filter(syntax)?;
        let window = match &syntax.over {
            Some(WindowType::NamedWindow(name)) => {
                let name = object_name(name);
                self.window_named(&name)?
            }
            Some(WindowType::WindowSpec(spec)) => {
                let window = self.window(spec, None)?;
                self.place_of_window(window)?
            }
            None => return Err(SqlError::internal("a window function without OVER")),
        };
        let ty = function.result;
        let level = self.level()?;
        let place = level.window_results;
        let call = WindowCall { function, arguments, filter, place };
        let calls = &mut level.select.windows[window].calls;
        if let Some(known) = calls.iter().find(|known| is_same_call(known, &call)) {
            return Ok(Typed::new(Expr::WindowResult(known.place), ty));
        }
        calls.push(call);
        level.window_results += 1;
        Ok(Typed::new(Expr::WindowResult(place), ty))
    }

    fn check_window_allowed(&self) -> Result<()> {
        match self.clause() {
            Clause::Targets | Clause::OrderBy if !self.levels.is_empty() => Ok(()),
            Clause::Aggregate => Err(SqlError::new(
                sqlstate::GROUPING_ERROR,
                "aggregate function calls cannot contain window function calls",
            )),
            Clause::Other(name) if name.starts_with("window ") => {
                Err(windowing("window functions are not allowed in window definitions"))
            }
            clause => Err(windowing(format!("window functions are not allowed in {}", clause.name()))),
        }
    }

    /// The WINDOW clause.
    pub(super) fn window_clause(&mut self, definitions: &[NamedWindowDefinition]) -> Result<()> {
        for NamedWindowDefinition(name, definition) in definitions {
            let NamedWindowExpr::WindowSpec(spec) = definition else {
                return Err(SqlError::syntax("syntax error in WINDOW: parentheses are expected"));
            };
            let name = object_name(name);
            if self.level()?.select.windows.iter().any(|known| known.name.as_ref() == Some(&name)) {
                return Err(windowing(format!("window \"{name}\" is already defined")));
            }
            let window = self.window(spec, Some(name))?;
            self.level()?.select.windows.push(window);
        }
        Ok(())
    }

    fn window_named(&mut self, name: &str) -> Result<usize> {
        let windows = &self.level()?.select.windows;
        windows.iter().position(|known| known.name.as_deref() == Some(name)).ok_or_else(|| {
            SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"))
        })
    }

    /// The place of an unnamed window: that of an equal one, if there is one.
    fn place_of_window(&mut self, window: Window) -> Result<usize> {
        let windows = &mut self.level()?.select.windows;
        let found = windows.iter().position(|known| {
            same(&known.partition, &window.partition)
                && same(&known.order, &window.order)
                && same(&known.frame, &window.frame)
        });
        Ok(found.unwrap_or_else(|| {
            windows.push(window);
            windows.len() - 1
        }))
    }

    /// A window, with what it takes over from the one that it extends. `name` is its own.
    fn window(&mut self, spec: &WindowSpec, name: Option<String>) -> Result<Window> {
        let (base, exclusion) = match spec.window_name.as_ref().map(|name| (name, exclusion_of(name))) {
            None => (None, Exclusion::None),
            Some((name, None)) => (Some(object_name(name)), Exclusion::None),
            Some((_, Some((mark, base)))) => {
                let exclusion = match mark {
                    'c' => Exclusion::CurrentRow,
                    'g' => Exclusion::Group,
                    _ => Exclusion::Ties,
                };
                ((!base.is_empty()).then(|| base.to_owned()), exclusion)
            }
        };
        let base = match base {
            Some(base) => {
                let place = self.window_named(&base)?;
                Some((base, self.level()?.select.windows[place].clone()))
            }
            None => None,
        };
        let mut window = self.in_clause(Clause::WindowDefinition, |binder| binder.window_keys(spec))?;
        let (frame, offsets) = self.frame(spec.window_frame.as_ref(), exclusion)?;
        window.frame = frame;
        if let Some((base_name, base)) = base {
            extend(&mut window, base, &base_name, name.is_some())?;
        }
        window.name = name;
        self.check_frame(&mut window, offsets)?;
        Ok(window)
    }

    /// PARTITION BY and ORDER BY.
    fn window_keys(&mut self, spec: &WindowSpec) -> Result<Window> {
        let mut window = Window::default();
        for key in &spec.order_by {
            let typed = self.settled_expression(&key.expr)?;
            self.check_sortable_value(&typed, "ordering")?;
            let (descending, nulls_first) = sort_direction(&key.options);
            // A later key on the same expression decides nothing.
            if !window.order.iter().any(|(known, ..)| same(known, &typed.expr)) {
                window.order_type.get_or_insert(typed.ty);
                window.order.push((typed.expr, descending, nulls_first));
            }
        }
        for expr in &spec.partition_by {
            let typed = self.settled_expression(expr)?;
            self.check_sortable_value(&typed, "equality")?;
            if !window.partition.iter().any(|known| same(known, &typed.expr)) {
                window.partition.push(typed.expr);
            }
        }
        let order = window.order.iter().map(|(expr, ..)| expr);
        if order.chain(&window.partition).any(|expr| expr.any(&mut |e| matches!(e, Expr::SetResult(_)))) {
            return Err(not_implemented("set-returning functions are not allowed in window definitions"));
        }
        Ok(window)
    }

    /// The frame clause, and the types of its offsets of RANGE, which are still to be converted.
    fn frame(&mut self, syntax: Option<&WindowFrame>, exclusion: Exclusion) -> Result<(Frame, Vec<Type>)> {
        let Some(syntax) = syntax else {
            if exclusion != Exclusion::None {
                return Err(SqlError::syntax("syntax error at or near \"EXCLUDE\""));
            }
            return Ok((Frame::standard(), vec![]));
        };
        let mode = match syntax.units {
            WindowFrameUnits::Rows => FrameMode::Rows,
            WindowFrameUnits::Range => FrameMode::Range,
            WindowFrameUnits::Groups => FrameMode::Groups,
        };
        let current = WindowFrameBound::CurrentRow;
        let end = syntax.end_bound.as_ref().unwrap_or(&current);
        check_bounds(&syntax.start_bound, end)?;
        let mut offsets = vec![];
        let start = self.frame_bound(&syntax.start_bound, mode, &mut offsets)?;
        let end = self.frame_bound(end, mode, &mut offsets)?;
        Ok((Frame { is_explicit: true, mode, start, end, exclusion }, offsets))
    }

    fn frame_bound(
        &mut self,
        syntax: &WindowFrameBound,
        mode: FrameMode,
        offsets: &mut Vec<Type>,
    ) -> Result<FrameBound> {
        let mut bind = |offset: &Syntax| {
            let typed = self.offset(offset, mode)?;
            offsets.push(typed.ty);
            Ok::<Expr, SqlError>(typed.expr)
        };
        Ok(match syntax {
            WindowFrameBound::CurrentRow => FrameBound::Current,
            WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => FrameBound::Unbounded,
            WindowFrameBound::Preceding(Some(offset)) => FrameBound::Preceding(bind(offset)?),
            WindowFrameBound::Following(Some(offset)) => FrameBound::Following(bind(offset)?),
        })
    }

    /// An offset of ROWS or GROUPS is a bigint. One of RANGE depends on the sort key:
    /// [`Binder::check_frame`] converts it.
    fn offset(&mut self, syntax: &Syntax, mode: FrameMode) -> Result<Typed> {
        let what = mode_name(mode);
        let clause = Clause::Other(match mode {
            FrameMode::Rows => "window ROWS",
            FrameMode::Range => "window RANGE",
            FrameMode::Groups => "window GROUPS",
        });
        let typed = self.in_clause(clause, |binder| match syntax {
            // The parser takes a string for an interval.
            Syntax::Interval(interval) if interval.leading_field.is_none() => {
                binder.expression(&interval.value)
            }
            syntax => binder.expression(syntax),
        })?;
        let mut variable = false;
        typed.expr.for_each_reference(0, &mut |depth, _| variable |= depth == 0);
        if variable || typed.expr.any(&mut |expr| matches!(expr, Expr::Aggregate { depth: 0, .. })) {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                format!("argument of {what} must not contain variables"),
            ));
        }
        if mode == FrameMode::Range {
            return Ok(typed);
        }
        let from = typed.ty;
        let converted = self.coerce(typed, TypeId::Int8.into(), CastContext::Assignment)?;
        converted.ok_or_else(|| {
            SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!("argument of {what} must be type bigint, not type {}", from.id.sql_name()),
            )
        })
    }

    /// What the frame asks of ORDER BY, which may come from the window it extends; converts the
    /// offsets of RANGE.
    fn check_frame(&mut self, window: &mut Window, offsets: Vec<Type>) -> Result<()> {
        match window.frame.mode {
            FrameMode::Groups if window.order.is_empty() => {
                Err(windowing("GROUPS mode requires an ORDER BY clause"))
            }
            FrameMode::Range if !offsets.is_empty() => {
                let key = window.order_type.filter(|_| window.order.len() == 1).ok_or_else(|| {
                    windowing("RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column")
                })?;
                let bounds = [&mut window.frame.start, &mut window.frame.end];
                let places = bounds.into_iter().filter_map(FrameBound::offset_mut);
                for (place, ty) in places.zip(offsets) {
                    let expr = std::mem::replace(place, Expr::NULL);
                    *place = self.range_offset(Typed::new(expr, ty), key)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Converts an offset of RANGE to the type that can be added to the sort key.
    fn range_offset(&mut self, offset: Typed, key: Type) -> Result<Expr> {
        let unsupported = |what: String, hint: Option<&str>| {
            let error = not_implemented(format!("RANGE with offset PRECEDING/FOLLOWING {what}"));
            match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        };
        let kinds = offset_types(key.id);
        if kinds.is_empty() {
            return Err(unsupported(format!("is not supported for column type {}", key.id.sql_name()), None));
        }
        let both = format!("column type {} and offset type {}", key.id.sql_name(), offset.ty.id.sql_name());
        // What has no type is of the key's own, if it can be.
        let given = match offset.ty.id {
            TypeId::Unknown if kinds.contains(&key.id) => key,
            _ => offset.ty,
        };
        let fits = |to: TypeId| {
            given.id == TypeId::Unknown
                || crate::types::cast::find(given, to.into(), CastContext::Implicit).is_some()
        };
        let fitting: Vec<TypeId> = kinds.iter().copied().filter(|kind| fits(*kind)).collect();
        let chosen = match fitting.as_slice() {
            [] => {
                return Err(unsupported(
                    format!("is not supported for {both}"),
                    Some("Cast the offset value to an appropriate type."),
                ));
            }
            [one] => *one,
            many if many.contains(&given.id) => given.id,
            _ => {
                return Err(unsupported(
                    format!("has multiple interpretations for {both}"),
                    Some("Cast the offset value to the exact intended type."),
                ));
            }
        };
        Ok(self.convert(offset, chosen.into())?.expr)
    }
}

/// Whether two calls over one window are the same one written twice: it is computed once, and an
/// ORDER BY finds it among the outputs.
fn is_same_call(left: &WindowCall, right: &WindowCall) -> bool {
    std::ptr::eq(left.function.function, right.function.function)
        && left.function.result == right.function.result
        && left.function.is_spread == right.function.is_spread
        && left.function.arguments == right.function.arguments
        && same(&left.arguments, &right.arguments)
        && same(&left.filter, &right.filter)
        && !left.arguments.iter().chain(&left.filter).any(Expr::is_volatile)
}

/// What a call with OVER cannot be.
fn check_call(
    name: &str,
    function: &ResolvedFunction,
    syntax: &FunctionSyntax,
    list: &FunctionArgumentList,
    wildcard: bool,
) -> Result<()> {
    let kind = function.function.kind();
    if !matches!(kind, Kind::Window | Kind::Aggregate) {
        return Err(SqlError::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("OVER specified, but {name} is not a window function nor an aggregate function"),
        ));
    }
    if !syntax.within_group.is_empty() {
        return Err(match kind {
            Kind::Window => SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("window function {name} cannot have WITHIN GROUP"),
            ),
            _ if function::is_ordered_set(name) => {
                not_implemented(format!("OVER is not supported for ordered-set aggregate {name}"))
            }
            _ => SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"),
            ),
        });
    }
    if function::is_ordered_set(name) {
        let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
        return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
    }
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Err(not_implemented("DISTINCT is not implemented for window functions"));
    }
    match list.clauses.first() {
        Some(FunctionArgumentClause::OrderBy(_)) => {
            return Err(not_implemented("aggregate ORDER BY is not implemented for window functions"));
        }
        Some(other) => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
        None => {}
    }
    if syntax.null_treatment.is_some() {
        return Err(SqlError::syntax("syntax error at or near \"NULLS\""));
    }
    if kind == Kind::Window && syntax.filter.is_some() {
        return Err(not_implemented("FILTER is not implemented for non-aggregate window functions"));
    }
    if kind == Kind::Aggregate && list.args.is_empty() && !wildcard {
        return Err(SqlError::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("{name}(*) must be used to call a parameterless aggregate function"),
        ));
    }
    Ok(())
}

/// The types that can be added to a sort key of this type.
fn offset_types(key: TypeId) -> &'static [TypeId] {
    match key {
        TypeId::Int2 | TypeId::Int4 => &[TypeId::Int8, TypeId::Int4, TypeId::Int2],
        TypeId::Int8 => &[TypeId::Int8],
        TypeId::Float4 | TypeId::Float8 => &[TypeId::Float8],
        TypeId::Numeric => &[TypeId::Numeric],
        TypeId::Date | TypeId::Time | TypeId::Timestamp | TypeId::Timestamptz | TypeId::Interval => {
            &[TypeId::Interval]
        }
        _ => &[],
    }
}

/// Takes over what the base has and the window has not.
fn extend(window: &mut Window, base: Window, name: &str, defined: bool) -> Result<()> {
    if !window.partition.is_empty() {
        return Err(windowing(format!("cannot override PARTITION BY clause of window \"{name}\"")));
    }
    if !window.order.is_empty() && !base.order.is_empty() {
        return Err(windowing(format!("cannot override ORDER BY clause of window \"{name}\"")));
    }
    if base.frame.is_explicit {
        let error = windowing(format!("cannot copy window \"{name}\" because it has a frame clause"));
        let more = defined || !window.order.is_empty() || window.frame.is_explicit;
        return Err(match more {
            true => error,
            false => error.with_hint("Omit the parentheses in this OVER clause."),
        });
    }
    window.partition = base.partition;
    if window.order.is_empty() {
        window.order = base.order;
        window.order_type = base.order_type;
    }
    Ok(())
}

/// The ends that cannot be together.
fn check_bounds(start: &WindowFrameBound, end: &WindowFrameBound) -> Result<()> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    Err(windowing(match (start, end) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Preceding(None)) => "frame end cannot be UNBOUNDED PRECEDING",
        (CurrentRow, Preceding(_)) => "frame starting from current row cannot have preceding rows",
        (Following(_), Preceding(_)) => "frame starting from following row cannot have preceding rows",
        (Following(_), CurrentRow) => "frame starting from following row cannot end with current row",
        _ => return Ok(()),
    }))
}

fn mode_name(mode: FrameMode) -> &'static str {
    match mode {
        FrameMode::Rows => "ROWS",
        FrameMode::Range => "RANGE",
        FrameMode::Groups => "GROUPS",
    }
}

fn windowing(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::WINDOWING_ERROR, message.into())
}

fn not_implemented(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message.into())
}
