//! The choice among overloaded functions or operators: PostgreSQL's rules, chapter "Type
//! Conversion" of its manual.

use smallvec::SmallVec;

use crate::types::cast::{self, CastContext};
use crate::types::{Category, Type, TypeId};

/// Types of the parameters of one candidate, as many as the call has arguments.
pub(super) type Parameters = SmallVec<[TypeId; 4]>;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The candidate of this index.
    One(usize),
    /// No candidate can take the arguments.
    None,
    /// Several can, and nothing tells which is meant.
    Ambiguous,
}

/// Does an argument of type `from` convert to `to` without being asked?
pub(super) fn converts(from: TypeId, to: TypeId) -> bool {
    if from == to || from == TypeId::Unknown {
        return true;
    }
    match to {
        TypeId::Any | TypeId::AnyElement | TypeId::AnyCompatible => true,
        TypeId::AnyArray | TypeId::AnyCompatibleArray => from.element().is_some(),
        TypeId::AnyNonArray => from.element().is_none(),
        _ => cast::find(Type::new(from), Type::new(to), CastContext::Implicit).is_some(),
    }
}

/// Whether the parameter at this place of this candidate is a domain: its values are those of the
/// type under it, but nothing is of it by itself, and no category prefers it.
pub(super) type OfDomain<'a> = &'a dyn Fn(usize, usize) -> bool;

/// The candidate whose parameters are of just these types.
pub(super) fn exact(
    candidates: &[Parameters],
    of_domain: OfDomain<'_>,
    arguments: &[TypeId],
) -> Option<usize> {
    let is_plain = |candidate| (0..arguments.len()).all(|place| !of_domain(candidate, place));
    (0..candidates.len()).find(|&i| candidates[i].as_slice() == arguments && is_plain(i))
}

/// Chooses the candidate for arguments of these types.
pub(super) fn choose(candidates: &[Parameters], of_domain: OfDomain<'_>, arguments: &[TypeId]) -> Choice {
    // A perfect match needs no rules.
    if let Some(exact) = exact(candidates, of_domain, arguments) {
        return Choice::One(exact);
    }
    let mut left: Vec<usize> = (0..candidates.len())
        .filter(|&i| candidates[i].iter().zip(arguments).all(|(to, from)| converts(*from, *to)))
        .filter(|&i| generic_types(&candidates[i], arguments).is_some())
        .collect();
    match left.as_slice() {
        [] => return Choice::None,
        [one] => return Choice::One(*one),
        _ => {}
    }
    let typed = |i: usize| {
        let typed = candidates[i].iter().zip(arguments).enumerate();
        typed.filter(move |(place, (_, from))| **from != TypeId::Unknown && !of_domain(i, *place))
    };
    keep_best(&mut left, |i| typed(i).filter(|(_, (to, from))| to == from).count());
    keep_best(&mut left, |i| {
        let fits =
            |to: TypeId, from: TypeId| to == from || (to.is_preferred() && to.category() == from.category());
        typed(i).filter(|(_, (to, from))| fits(**to, **from)).count()
    });
    if let [one] = left.as_slice() {
        return Choice::One(*one);
    }
    if !arguments.contains(&TypeId::Unknown) {
        return Choice::Ambiguous;
    }
    choose_for_unknown(candidates, of_domain, arguments, left)
}

fn keep_best(left: &mut Vec<usize>, score: impl Fn(usize) -> usize) {
    let best = left.iter().map(|&i| score(i)).max().unwrap_or(0);
    left.retain(|&i| score(i) == best);
}

/// Untyped literals: a category for each place on which the candidates agree, or strings; then the
/// type of the other arguments.
fn choose_for_unknown(
    candidates: &[Parameters],
    of_domain: OfDomain<'_>,
    arguments: &[TypeId],
    mut left: Vec<usize>,
) -> Choice {
    let is_preferred = |i: usize, place: usize| candidates[i][place].is_preferred() && !of_domain(i, place);
    let mut slots: Vec<(usize, Category, bool)> = Vec::new();
    let mut resolved = true;
    for (place, _) in arguments.iter().enumerate().filter(|(_, ty)| **ty == TypeId::Unknown) {
        let (mut category, mut preferred, mut conflict) = (Category::Unknown, false, false);
        for &i in &left {
            let ty = candidates[i][place];
            if category == Category::Unknown {
                (category, preferred) = (ty.category(), is_preferred(i, place));
            } else if ty.category() == category {
                preferred |= is_preferred(i, place);
            } else if ty.category() == Category::String {
                (category, preferred) = (Category::String, is_preferred(i, place));
            } else {
                conflict = true;
            }
        }
        if conflict && category != Category::String {
            resolved = false;
            break;
        }
        slots.push((place, category, preferred));
    }
    if resolved {
        let fits = |i: &usize| {
            slots.iter().all(|(place, category, preferred)| {
                let ty = candidates[*i][*place];
                ty.category() == *category && (!preferred || is_preferred(*i, *place))
            })
        };
        if left.iter().any(fits) {
            left.retain(fits);
        }
        if let [one] = left.as_slice() {
            return Choice::One(*one);
        }
    }
    // Last: if all typed arguments have one type, suppose that the others have it too.
    let mut known = arguments.iter().filter(|ty| **ty != TypeId::Unknown);
    if let Some(first) = known.next()
        && known.all(|ty| ty == first)
    {
        let supposed: Parameters = arguments.iter().map(|_| *first).collect();
        let mut accepting = left.iter().filter(|&&i| {
            candidates[i].iter().all(|to| converts(*first, *to))
                && generic_types(&candidates[i], &supposed).is_some()
        });
        if let (Some(one), None) = (accepting.next(), accepting.next()) {
            return Choice::One(*one);
        }
    }
    Choice::Ambiguous
}

/// What `anyelement` and its like stand for in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generic {
    /// The type of `anyelement` and `anynonarray`, and of the elements of `anyarray`: the same in
    /// all arguments.
    element: Option<TypeId>,
    /// The same for `anycompatible` and its array: what the arguments convert to.
    compatible: Option<TypeId>,
}

impl Generic {
    /// The real type for a declared one. Where only untyped literals were given it is text.
    pub(super) fn actual(&self, declared: TypeId) -> TypeId {
        let array = |element: Option<TypeId>| element.and_then(TypeId::array).unwrap_or(TypeId::TextArray);
        match declared {
            TypeId::AnyElement | TypeId::AnyNonArray => self.element.unwrap_or(TypeId::Text),
            TypeId::AnyCompatible => self.compatible.unwrap_or(TypeId::Text),
            TypeId::AnyArray => array(self.element),
            TypeId::AnyCompatibleArray => array(self.compatible),
            other => other,
        }
    }
}

/// The type that both convert to.
fn common(a: TypeId, b: TypeId) -> Option<TypeId> {
    if a == b {
        return Some(a);
    }
    if a.category() != b.category() {
        return None;
    }
    let (to_b, to_a) = (converts(a, b), converts(b, a));
    if to_b && !a.is_preferred() && (!to_a || b.is_preferred()) {
        Some(b)
    } else if to_a {
        Some(a)
    } else {
        None
    }
}

/// Whether parameters are to be of one type that no argument says: for `anyelement` and its array
/// nothing is supposed, while `anycompatible` is text then.
pub(super) fn is_untyped(parameters: &[TypeId], arguments: &[TypeId]) -> bool {
    let is_of_family =
        |ty: &TypeId| matches!(ty, TypeId::AnyElement | TypeId::AnyNonArray | TypeId::AnyArray);
    let mut given = parameters.iter().zip(arguments).filter(|(to, _)| is_of_family(to)).peekable();
    given.peek().is_some() && given.all(|(_, from)| *from == TypeId::Unknown)
}

/// Agrees the polymorphic parameters with the arguments; `None` if they cannot be.
pub(super) fn generic_types(parameters: &[TypeId], arguments: &[TypeId]) -> Option<Generic> {
    let mut generic = Generic::default();
    for (&to, &from) in parameters.iter().zip(arguments).filter(|(_, from)| **from != TypeId::Unknown) {
        match to {
            TypeId::AnyElement | TypeId::AnyNonArray | TypeId::AnyArray => {
                let this = if to == TypeId::AnyArray { from.element()? } else { from };
                if generic.element.replace(this).is_some_and(|before| before != this) {
                    return None;
                }
            }
            TypeId::AnyCompatible | TypeId::AnyCompatibleArray => {
                let this = if to == TypeId::AnyCompatibleArray { from.element()? } else { from };
                generic.compatible =
                    Some(generic.compatible.map_or(Some(this), |before| common(before, this))?);
            }
            _ => {}
        }
    }
    // There are no arrays of arrays.
    let is_wrong = |element: Option<TypeId>, array: TypeId| {
        parameters.contains(&array) && element.is_some_and(|element| element.array().is_none())
    };
    let wrong = is_wrong(generic.element, TypeId::AnyArray)
        || is_wrong(generic.compatible, TypeId::AnyCompatibleArray);
    (!wrong).then_some(generic)
}
