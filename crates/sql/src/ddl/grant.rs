//! GRANT and REVOKE of privileges on objects that are there.
//!
//! For each object: who gives (the owner, for whoever counts as him; else the one with the right to
//! give on), what of the wanted privileges he may give, and the list as it is afterwards. Objects
//! are not locked, their lists are: a GRANT goes beside whatever is done with a table, but for
//! DROP, which takes the list along. All that change are stored together (`lists`). Of columns see
//! `grant_column`.

use std::collections::HashSet;

use super::grant_column::OnRelation;
use super::lists::Lists;
use super::names::Qualified;
use super::permission::{denied, described};
use super::resolve::{undefined_schema, undefined_table, wrong_type};
use super::user_type::undefined_type;
use crate::catalog::access_list::{self, Refused};
use crate::catalog::{AclItem, Oid, Privileges, Relation, RoutineKind, Securable, store};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{GrantStatement, Objects, RoleRef};
use crate::session::work::Work;

/// An object with privileges, and the name that messages have for it.
pub(super) struct Subject {
    pub(super) oid: Oid,
    kind: Securable,
    pub(super) name: String,
    /// TABLE was said, or nothing.
    as_table: bool,
}

pub(super) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_GRANT_OPERATION, message)
}

/// The error of an object that was dropped while its list was waited for.
fn gone(subject: &Subject) -> SqlError {
    match subject.kind {
        Securable::Table => undefined_table(&Qualified::plain(&subject.name)),
        _ => SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("\"{}\" does not exist", subject.name)),
    }
}

/// The error of a list that cannot change so.
pub(super) fn refused(refused: Refused) -> SqlError {
    match refused {
        Refused::Dependent => {
            SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, "dependent privileges exist")
                .with_hint("Use CASCADE to revoke them too.")
        }
        Refused::Circular => invalid("grant options cannot be granted back to your own grantor"),
    }
}

/// What a statement's words mean on objects of a kind; none is ALL. 42601, 0LP01.
pub(super) fn wanted(words: Option<&[String]>, kind: Securable, noun: &str) -> Result<Option<Privileges>> {
    let Some(words) = words else { return Ok(None) };
    // Of a sequence privileges may be given as if it were a table.
    let more = if kind == Securable::Table { Privileges::USAGE } else { Privileges::NONE };
    let mut wanted = Privileges::NONE;
    for word in words {
        wanted = wanted | privilege(word, kind.all() | more, noun)?;
    }
    Ok(Some(wanted))
}

/// What a word means that is to be one of these privileges. 42601, 0LP01.
pub(super) fn privilege(word: &str, all: Privileges, noun: &str) -> Result<Privileges> {
    let misplaced = |word: &str| invalid(format!("invalid privilege type {word} for {noun}"));
    if ["SET", "ALTER SYSTEM"].contains(&word) {
        return Err(misplaced(word));
    }
    let privilege = Privileges::of_word(word).ok_or_else(|| {
        SqlError::syntax(format!("unrecognized privilege type \"{}\"", word.to_lowercase()))
    })?;
    match all.has_all(privilege) {
        true => Ok(privilege),
        false => Err(misplaced(privilege.words().next().unwrap_or_default())),
    }
}

/// What is said of languages: everybody may use those that there are, so nothing is to be kept of
/// a GRANT, and a REVOKE cannot be. 42704, 42809, 0LP01.
fn check_languages(names: &[sqlparser::ast::Ident], statement: &GrantStatement) -> Result<()> {
    if !statement.columns.is_empty() {
        return Err(invalid("column privileges are only valid for relations"));
    }
    for word in statement.privileges.iter().flatten() {
        privilege(word, Privileges::USAGE, "language")?;
    }
    for name in names {
        let name = fold(name);
        match name.as_str() {
            "sql" | "plpgsql" => {}
            "c" | "internal" => {
                let message = format!("language \"{name}\" is not trusted");
                return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
            }
            _ => {
                let message = format!("language \"{name}\" does not exist");
                return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
            }
        }
    }
    if statement.grant { Ok(()) } else { Err(SqlError::unsupported("REVOKE ON LANGUAGE")) }
}

impl Work<'_> {
    /// GRANT and REVOKE of privileges.
    pub(crate) async fn grant(&mut self, statement: &GrantStatement) -> Result<()> {
        if let Objects::Unsupported(what) = &statement.objects {
            return Err(SqlError::unsupported(what));
        }
        let unknown = statement.grantees.iter().chain(&statement.granted_by);
        if unknown.into_iter().any(|role| self.is_before_roles(role)) {
            let message = "there are no roles yet, and everybody may do everything: privileges are not kept";
            self.notice(SqlError::notice(message));
            return Ok(());
        }
        self.require_own_grantor(statement.granted_by.as_ref())?;
        let grantees = self.grantees(statement)?;
        if let Objects::Languages(names) = &statement.objects {
            return check_languages(names, statement);
        }
        self.hold_grantees(statement, &grantees).await?;
        let (kind, noun) = kind_of(&statement.objects);
        if !statement.columns.is_empty() && kind != Securable::Table {
            return Err(invalid("column privileges are only valid for relations"));
        }
        let wanted = wanted(statement.privileges.as_deref(), kind, noun)?;
        let subjects = self.subjects(&statement.objects)?;
        for subject in &subjects {
            self.lock_subject(subject).await?;
        }
        let (mut all, mut met) = (Vec::new(), HashSet::new());
        for subject in &subjects {
            // What is named again has other lists by now.
            if !met.insert(subject.oid) {
                self.store_lists(std::mem::take(&mut all))?;
            }
            all.push(self.grant_on(subject, statement, &grantees, wanted)?);
        }
        self.store_lists(all)
    }

    /// 0A000 if somebody else is said to give.
    pub(super) fn require_own_grantor(&self, granted_by: Option<&RoleRef>) -> Result<()> {
        let Some(grantor) = granted_by else { return Ok(()) };
        match self.role_named(grantor)? == self.facts.role(&self.catalog) {
            true => Ok(()),
            false => Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "grantor must be current user")),
        }
    }

    /// Oids of who gets or loses privileges; 0 is everybody. 42704, 0LP01.
    pub(super) fn grantees(&self, statement: &GrantStatement) -> Result<Vec<Oid>> {
        let oid = |role: &RoleRef| match role {
            RoleRef::Public if statement.with_option => {
                Err(invalid("grant options can only be granted to roles"))
            }
            RoleRef::Public => Ok(0),
            role => self.role_named(role),
        };
        statement.grantees.iter().map(oid).collect()
    }

    /// Keeps those who get privileges from being dropped before the transaction ends. 42704.
    pub(super) async fn hold_grantees(&mut self, statement: &GrantStatement, grantees: &[Oid]) -> Result<()> {
        if statement.grant {
            for &grantee in grantees {
                self.hold_role(grantee).await?;
            }
        }
        Ok(())
    }

    fn subjects(&self, objects: &Objects) -> Result<Vec<Subject>> {
        match objects {
            Objects::Tables(names) => names.iter().map(|name| self.relation_subject(name, true)).collect(),
            Objects::Sequences(names) => {
                names.iter().map(|name| self.relation_subject(name, false)).collect()
            }
            Objects::Schemas(names) => {
                let subject = |name: &sqlparser::ast::Ident| {
                    let name = fold(name);
                    let schema = self.catalog.schema(&name).ok_or_else(|| undefined_schema(&name))?;
                    Ok(Subject { oid: schema.oid, kind: Securable::Schema, name, as_table: false })
                };
                names.iter().map(subject).collect()
            }
            Objects::Databases(names) => {
                let subject = |name: &sqlparser::ast::Ident| {
                    let name = fold(name);
                    let oid = self.database_called(&name)?.oid;
                    Ok(Subject { oid, kind: Securable::Database, name, as_table: false })
                };
                names.iter().map(subject).collect()
            }
            Objects::Routines(kind, routines) => {
                let subject = |(name, arguments): &crate::parse::NamedRoutine| {
                    let name = Qualified::from_object_name(name)?;
                    let routine = self.named_routine(*kind, &name, arguments.as_deref())?;
                    Ok(Subject {
                        oid: routine.oid,
                        kind: Securable::Routine,
                        name: routine.name.clone(),
                        as_table: false,
                    })
                };
                routines.iter().map(subject).collect()
            }
            Objects::Types(names) => names.iter().map(|name| self.type_subject(name)).collect(),
            Objects::AllIn(kind, routines, schemas) => {
                let mut all = Vec::new();
                for schema in schemas {
                    all.extend(self.all_in(*kind, *routines, &fold(schema))?);
                }
                Ok(all)
            }
            Objects::ToCome(_) | Objects::Languages(_) | Objects::Unsupported(_) => {
                Err(SqlError::internal("no object is named"))
            }
        }
    }

    fn relation_subject(&self, name: &sqlparser::ast::ObjectName, as_table: bool) -> Result<Subject> {
        let name = Qualified::from_object_name(name)?;
        self.require_usage(&name)?;
        let relation = match self.find(&name) {
            Some(relation) => relation,
            None if crate::pg_catalog::table(name.schema.as_deref().unwrap_or("pg_catalog"), &name.name)
                .is_some() =>
            {
                return Err(SqlError::unsupported("GRANT on a table of the system"));
            }
            None => return Err(undefined_table(&name)),
        };
        let kind = match &relation {
            Relation::Sequence(_) => Securable::Sequence,
            Relation::Index(..) => {
                let message = format!("\"{}\" is an index", relation.name());
                return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
            }
            _ if !as_table => return Err(wrong_type(relation.name(), "sequence")),
            _ => Securable::Table,
        };
        Ok(Subject { oid: relation.oid(), kind, name: relation.name().to_owned(), as_table })
    }

    fn type_subject(&self, name: &sqlparser::ast::ObjectName) -> Result<Subject> {
        let name = Qualified::from_object_name(name)?;
        self.require_usage(&name)?;
        let path = self.facts.binding_path(&self.catalog);
        match self.catalog.user_type(&path, name.schema.as_deref(), &name.name) {
            Some(ty) => Ok(Subject {
                oid: ty.oid(),
                kind: Securable::Type,
                name: ty.name().to_owned(),
                as_table: false,
            }),
            None if crate::types::TypeId::from_name(&name.name).is_some() => {
                Err(SqlError::unsupported("GRANT on a built-in type"))
            }
            None => Err(undefined_type(&name)),
        }
    }

    fn all_in(&self, kind: Securable, routines: Option<RoutineKind>, schema: &str) -> Result<Vec<Subject>> {
        let schema = self.catalog.schema(schema).cloned().ok_or_else(|| undefined_schema(schema))?;
        let mut all: Vec<Subject> = Vec::new();
        let mut add =
            |oid, name: &str| all.push(Subject { oid, kind, name: name.to_owned(), as_table: false });
        if kind == Securable::Routine {
            let inside = self.catalog.routines().filter(|routine| routine.schema == schema.oid);
            // FUNCTIONS are those that are called in expressions, and ROUTINES all.
            let inside = inside.filter(|routine| routines.is_none_or(|kind| kind == routine.kind));
            inside.for_each(|routine| add(routine.oid, &routine.name));
        }
        for relation in self.catalog.relations_in(schema.oid) {
            let is_of_it = match relation {
                Relation::Table(_) | Relation::View(_) => kind == Securable::Table,
                Relation::Sequence(_) => kind == Securable::Sequence,
                Relation::Index(..) => false,
            };
            if is_of_it {
                add(relation.oid(), relation.name());
            }
        }
        all.sort_by_key(|subject| subject.oid);
        Ok(all)
    }

    /// Locks the lists of an object that is there, and not a temporary one.
    async fn lock_subject(&mut self, subject: &Subject) -> Result<()> {
        let is_temporary = self.catalog.relation_by_oid(subject.oid).is_some_and(Relation::is_temporary);
        let is_temporary = is_temporary
            || self.catalog.schema_by_oid(subject.oid).is_some_and(|schema| schema.home.is_some());
        if is_temporary {
            return Err(SqlError::unsupported("GRANT on a temporary object"));
        }
        self.lock_access(subject.oid).await?;
        match self.catalog.object(subject.oid) {
            Some(_) => Ok(()),
            None => Err(gone(subject)),
        }
    }

    /// The lists of an object as the statement leaves them.
    fn grant_on(
        &mut self,
        subject: &Subject,
        statement: &GrantStatement,
        grantees: &[Oid],
        wanted: Option<Privileges>,
    ) -> Result<Lists> {
        let all = subject.kind.all();
        let asked = match wanted {
            None => all,
            Some(wanted) if subject.as_table && subject.kind == Securable::Table && !all.has_all(wanted) => {
                return Err(invalid("invalid privilege type USAGE for table"));
            }
            Some(wanted) => wanted & all,
        };
        let before = self.catalog.list_or_default(subject.oid, subject.kind);
        let mut lists = self.lists(subject.oid);
        // Nothing may be said but of columns.
        if wanted != Some(Privileges::NONE) {
            let (grantor, may) = self.grantor(subject, &before, asked)?;
            let given = asked & may;
            self.warn(&format!("\"{}\"", subject.name), statement, wanted.is_some(), asked, given);
            let owner = self.catalog.owner(subject.oid);
            let mut list = before.clone();
            for &grantee in grantees {
                change(&mut list, owner, (grantee, grantor), given, statement)?;
            }
            self.put_list(&mut lists, Some(list))?;
        }
        if subject.kind == Securable::Table {
            let relation = OnRelation { subject, statement, grantees, before: &before };
            self.grant_on_columns(&relation, asked, &mut lists)?;
        } else if !statement.columns.is_empty() {
            return Err(SqlError::unsupported("GRANT on columns of a sequence"));
        }
        Ok(lists)
    }

    /// Who gives by an object's list, and which of the wanted privileges he may give. 42501 for who
    /// has nothing to do with the object.
    fn grantor(&self, subject: &Subject, list: &[AclItem], wanted: Privileges) -> Result<(Oid, Privileges)> {
        let owner = self.catalog.owner(subject.oid);
        let best = self.best_grantor(owner, list, wanted);
        let Some(rights) = self.rights().filter(|rights| !rights.has(owner)) else { return Ok(best) };
        let all = subject.kind.all();
        let has_any = !self.catalog.privileges(&rights, subject.oid, subject.kind, all).is_empty();
        if best.1.is_empty() && !has_any {
            let what = match subject.kind {
                Securable::Database => format!("database {}", subject.name),
                kind => described(&self.catalog, subject.oid, kind),
            };
            return Err(denied(format!("permission denied for {what}")));
        }
        Ok(best)
    }

    /// Who gives by a list, of the roles that the session counts as: the owner if it is one, else
    /// the one that may give most. And which of the wanted privileges that one may give.
    pub(super) fn best_grantor(&self, owner: Oid, list: &[AclItem], wanted: Privileges) -> (Oid, Privileges) {
        let Some(rights) = self.rights().filter(|rights| !rights.has(owner)) else { return (owner, wanted) };
        let of = |role: Oid| {
            let own = list.iter().filter(|item| item.grantee == role);
            own.fold(Privileges::NONE, |found, item| found | item.grantable) & wanted
        };
        let roles = self.catalog.memberships(rights.role, true);
        let each = roles.into_iter().map(|role| (role, of(role)));
        each.fold((rights.role, Privileges::NONE), |best, next| {
            if next.1.words().count() > best.1.words().count() { next } else { best }
        })
    }

    /// Says that not all was given, or taken, that was asked for.
    pub(super) fn warn(
        &mut self,
        name: &str,
        statement: &GrantStatement,
        by_words: bool,
        asked: Privileges,
        given: Privileges,
    ) {
        let (state, verb) = match statement.grant {
            true => (sqlstate::PRIVILEGE_NOT_GRANTED, "were granted"),
            false => (sqlstate::PRIVILEGE_NOT_REVOKED, "could be revoked"),
        };
        let which = match () {
            () if given.is_empty() => "no",
            () if by_words && given != asked => "not all",
            () => return,
        };
        let message = format!("{which} privileges {verb} for {name}");
        self.notice(SqlError::warning(state, message));
    }

    /// Locks owner and privileges of an object.
    pub(super) async fn lock_access(&mut self, object: Oid) -> Result<()> {
        match self.catalog.database_by_oid(object) {
            Some(_) => self.lock_shared_name(store::ACCESS_LISTS, &object.to_string()).await,
            None => self.lock_name(store::ACCESS_LISTS, &object.to_string()).await,
        }
    }
}

/// The kind of the objects, and its word in messages.
fn kind_of(objects: &Objects) -> (Securable, &'static str) {
    match objects {
        Objects::Tables(_) => (Securable::Table, "relation"),
        Objects::Sequences(_) => (Securable::Sequence, "sequence"),
        Objects::Schemas(_) => (Securable::Schema, "schema"),
        Objects::Databases(_) => (Securable::Database, "database"),
        Objects::Types(_) => (Securable::Type, "type"),
        Objects::Routines(kind, _) => (Securable::Routine, kind.map_or("routine", RoutineKind::noun)),
        Objects::AllIn(kind, ..) | Objects::ToCome(kind) => match kind {
            Securable::Table => (Securable::Table, "relation"),
            Securable::Sequence => (Securable::Sequence, "sequence"),
            Securable::Routine => (Securable::Routine, "function"),
            Securable::Type => (Securable::Type, "type"),
            kind => (*kind, "schema"),
        },
        Objects::Languages(_) | Objects::Unsupported(_) => (Securable::Table, "object"),
    }
}

/// Changes a list as a statement says, for one role and from one.
pub(super) fn change(
    list: &mut Vec<AclItem>,
    owner: Oid,
    (grantee, grantor): (Oid, Oid),
    given: Privileges,
    statement: &GrantStatement,
) -> Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    let changed = if statement.grant {
        let grantable = if statement.with_option { given } else { Privileges::NONE };
        access_list::grant(list, owner, AclItem { grantee, grantor, privileges: given, grantable })
    } else {
        let privileges = if statement.option_for { Privileges::NONE } else { given };
        access_list::revoke(list, owner, (grantee, grantor), privileges, given, statement.cascade)
    };
    changed.map_err(refused)
}
