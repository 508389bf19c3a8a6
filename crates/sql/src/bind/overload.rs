//! Which routine a call is of: those of users compete with one another and with the built-in
//! functions of the name.
//!
//! A call may name its arguments, and leave out those with defaults; what is left are candidates
//! like built-in functions, among which PostgreSQL's rules choose. Candidates with the same
//! parameters hide each other in the order of the search path.

use std::sync::Arc;

use smallvec::SmallVec;
use sqlparser::ast::{FunctionArg, FunctionArgExpr};

use super::scope::object_name;
use super::{Binder, Clause, refuse_subquery};
use crate::catalog::{Argument, Routine};
use crate::ddl::resolve::undefined_schema;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::function::{self, Found};
use crate::parse;
use crate::types::cast::CastContext;
use crate::types::{Type, TypeId};

/// An argument of a call as it was given.
pub(super) struct Given {
    pub(super) name: Option<String>,
    pub(super) value: Typed,
}

/// A call as messages name it.
pub(super) fn signature(schema: Option<&str>, name: &str, given: &[Given]) -> String {
    let arguments = given.iter().map(|given| {
        let ty = given.value.ty.id.sql_name();
        given.name.as_ref().map_or_else(|| ty.to_owned(), |name| format!("{name} => {ty}"))
    });
    let qualifier = schema.map(|schema| format!("{schema}.")).unwrap_or_default();
    format!("{qualifier}{name}({})", arguments.collect::<Vec<_>>().join(", "))
}

/// A routine that can take a call's arguments.
pub(super) struct Candidate {
    pub(super) routine: Arc<Routine>,
    /// Place of its schema in the search path.
    schema: usize,
    /// For each argument that a call lists, which of those given it is; none is its default.
    places: Vec<Option<usize>>,
    /// Types of the parameters in the order of what was given.
    types: SmallVec<[TypeId; 4]>,
    /// Their oids, which tell domains and enum types apart.
    oids: SmallVec<[u32; 4]>,
    /// Which of them are domains, or arrays of such.
    of_domain: SmallVec<[bool; 4]>,
    /// Another one of its schema fits just as well.
    rivaled: bool,
}

impl Candidate {
    fn of(schema: usize, routine: &Arc<Routine>, given: &[Given]) -> Option<Candidate> {
        let listed: Vec<&Argument> = routine.listed().collect();
        if given.len() > listed.len() {
            return None;
        }
        let mut places = vec![None; listed.len()];
        let (mut types, mut oids, mut of_domain) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
        for (at, given) in given.iter().enumerate() {
            let place = match &given.name {
                None => at,
                Some(name) => listed.iter().position(|known| known.name.as_ref() == Some(name))?,
            };
            if places[place].replace(at).is_some() {
                return None;
            }
            let (wanted, ty) = (listed[place].ty, given.value.ty);
            // The choice among candidates goes by what does not tell enum types apart.
            if wanted.is_of_enum() && ty.is_of_enum() && wanted.modifier != ty.modifier {
                return None;
            }
            types.push(wanted.id);
            oids.push(wanted.oid());
            of_domain.push(wanted.domain_named().is_some());
        }
        let complete =
            listed.iter().zip(&places).all(|(known, place)| place.is_some() || known.default.is_some());
        let (routine, rivaled) = (routine.clone(), false);
        complete.then_some(Candidate { routine, schema, places, types, oids, of_domain, rivaled })
    }
}

/// Of candidates that take what was given as the same types the one of the first schema stays.
/// Several of that schema are rivals, however many defaults each of them uses.
fn without_hidden(candidates: impl Iterator<Item = Candidate>) -> Vec<Candidate> {
    let mut kept: Vec<Candidate> = vec![];
    for candidate in candidates {
        let Some(rival) = kept.iter_mut().find(|known| known.oids == candidate.oids) else {
            kept.push(candidate);
            continue;
        };
        rival.rivaled |= rival.schema == candidate.schema;
    }
    kept
}

/// The candidate whose parameters are just what was given, where some of that is of a domain: no
/// built-in function is.
fn exact(candidates: &[Candidate], types: &[Type]) -> Option<usize> {
    if types.iter().all(|ty| ty.domain_named().is_none()) {
        return None;
    }
    candidates.iter().position(|known| types.iter().map(|ty| ty.oid()).eq(known.oids.iter().copied()))
}

impl Binder<'_> {
    /// Binds a call's arguments.
    pub(super) fn given(&mut self, arguments: &[FunctionArg]) -> Result<Vec<Given>> {
        let mut given: Vec<Given> = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let (name, value) = match argument {
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                    (Some(object_name(name)), value)
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
                _ => return Err(SqlError::syntax("syntax error at or near \"*\"")),
            };
            match &name {
                Some(name) if name == parse::VARIADIC => {
                    return Err(SqlError::unsupported("VARIADIC in this place"));
                }
                None if given.last().is_some_and(|last| last.name.is_some()) => {
                    return Err(SqlError::syntax("positional argument cannot follow named argument"));
                }
                Some(name) if given.iter().any(|known| known.name.as_ref() == Some(name)) => {
                    return Err(SqlError::syntax(format!("argument name \"{name}\" used more than once")));
                }
                _ => {}
            }
            given.push(Given { name, value: self.expression(value)? });
        }
        Ok(given)
    }

    /// What a call is of; none if it is of a built-in function.
    pub(super) fn choose(
        &mut self,
        noun: &str,
        schema: Option<&str>,
        name: &str,
        given: &[Given],
    ) -> Result<Option<Candidate>> {
        let named = self.routines_named(schema, name);
        let mut candidates =
            without_hidden(named.filter_map(|(schema, routine)| Candidate::of(schema, routine, given)));
        let types: Vec<Type> = given.iter().map(|given| given.value.ty).collect();
        let (others, of_domains): (Vec<_>, Vec<_>) =
            candidates.iter().map(|known| (known.types.clone(), known.of_domain.clone())).unzip();
        // Arguments of built-in functions have no names here.
        let has_names = given.iter().any(|given| given.name.is_some());
        let found = match exact(&candidates, &types) {
            Some(place) => Found::Other(place),
            None if has_names => function::find(Some(""), name, &types, &others, &of_domains),
            None => function::find(schema, name, &types, &others, &of_domains),
        };
        match found {
            Found::BuiltIn(_) => Ok(None),
            Found::Other(place) if !candidates[place].rivaled => Ok(Some(candidates.swap_remove(place))),
            Found::Other(_) | Found::Several => {
                let error = function::ambiguous(noun, &signature(schema, name, given));
                Err(self.name_types(error, &types))
            }
            Found::Untyped => Err(function::untyped()),
            Found::Nothing => Err(match schema.filter(|name| self.context.catalog.schema(name).is_none()) {
                Some(schema) => undefined_schema(schema),
                None => {
                    let error = function::undefined(noun, &signature(schema, name, given));
                    self.name_types(error, &types)
                }
            }),
        }
    }

    /// The values of a routine's inputs, converted. What is given for OUT arguments of a procedure
    /// is not evaluated.
    pub(super) fn inputs(&mut self, candidate: &Candidate, given: Vec<Given>) -> Result<Vec<Expr>> {
        let mut given: Vec<Option<Typed>> = given.into_iter().map(|given| Some(given.value)).collect();
        let mut inputs = vec![];
        for (argument, place) in candidate.routine.listed().zip(&candidate.places) {
            let value = place.and_then(|place| given[place].take());
            let value = match (value, &argument.default) {
                (Some(value), _) => self.convert(value, argument.ty)?,
                (None, Some(default)) => self.default_argument(default, argument.ty)?,
                (None, None) => return Err(SqlError::internal("an argument without a value")),
            };
            if argument.mode.is_input() {
                inputs.push(value.expr);
            }
        }
        Ok(inputs)
    }

    /// The default of an argument, which sees nothing of the call's surroundings. 42804 if it does
    /// not fit.
    pub(crate) fn default_argument(&mut self, text: &str, ty: Type) -> Result<Typed> {
        let syntax = parse::parse_expression(text)?;
        let barrier = std::mem::replace(&mut self.barrier, self.levels.len());
        let positions = std::mem::replace(&mut self.positions, false);
        let scope = self.scope.take();
        self.push_level();
        let bound = self.in_clause(Clause::Default, |binder| {
            let typed = binder.expression(&syntax)?;
            let from = typed.ty;
            binder.coerce(typed, ty, CastContext::Assignment)?.ok_or_else(|| {
                let error = SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "argument of DEFAULT must be type {}, not type {}",
                        ty.id.sql_name(),
                        from.id.sql_name()
                    ),
                );
                binder.name_types(error, &[ty, from])
            })
        });
        self.pop_level()?;
        (self.barrier, self.positions, self.scope) = (barrier, positions, scope);
        let bound = bound?;
        refuse_subquery(&bound.expr, "DEFAULT expression")?;
        Ok(bound)
    }
}
