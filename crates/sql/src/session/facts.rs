//! The session as functions see it: settings, user, search path, random numbers.
//!
//! Shared between the session and what it evaluates, so what changes is behind a mutex; none is
//! held while another is taken.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cognate_engine::Transaction;
use cognate_env::SplitMix;
use parking_lot::Mutex;

use super::active::Fixed;
use super::activity::Activity;
use super::advisory::Advisory;
use super::listing::Listing;
use super::notify::News;
use super::sequence_values::SequenceValues;
use super::settings::{Effective, Mark, Settings};
use super::temporary::Temporary;
use super::usage::SessionUsage;
use super::{Authority, Orders, SessionParameters, SqlDatabase};
use crate::catalog::{Catalog, Oid, TEMPORARY_ALIAS};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::SessionView;
use crate::pg_catalog::{CatalogNames, ServerView};
use crate::types::{ObjectNames, Type};

mod server_view;

/// What stays of the session while statements come and go.
pub(crate) struct Facts {
    pub(crate) database: SqlDatabase,
    /// Who connected. What runs is asked as `current_user`.
    pub(crate) user: String,
    /// The role that `user` was when the session began, or the first one of that name afterwards.
    pub(super) connected: OnceLock<Oid>,
    /// What the client has called the database.
    pub(crate) given_database: String,
    pub(crate) process_id: i32,
    pub(super) authority: Authority,
    pub(super) orders: Option<Arc<dyn Orders>>,
    /// When the session began, microseconds since 2000-01-01 UTC.
    pub(crate) started: i64,
    /// Where the client is, over a network.
    pub(super) client: Option<SocketAddr>,
    /// The version of TLS that the connection is encrypted by.
    pub(super) tls: Option<&'static str>,
    pub(super) activity: Activity,
    /// A transaction waits for a snapshot that no cycle can go through.
    awaiting_safety: AtomicBool,
    settings: Mutex<Settings>,
    /// A function has changed a setting, and the session has not taken that over yet.
    has_set: AtomicBool,
    pub(super) catalog: Mutex<Arc<Catalog>>,
    /// The catalog of a snapshot that is older than the present one, by the snapshot and the stamp
    /// of own changes.
    shown: Mutex<Option<ShownCatalog>>,
    transaction_id: AtomicU64,
    random: Mutex<SplitMix>,
    /// What is the same at every node, in a session that executes what every node does.
    fixed: OnceLock<Fixed>,
    pub(super) sequences: Mutex<SequenceValues>,
    /// The last commit that anything rests on which the session has shown or is about to show,
    /// besides what its open transaction knows itself.
    rests_on: AtomicU64,
    pub(crate) advisory: Advisory,
    pub(crate) news: News,
    pub(crate) temporary: Temporary,
    /// What functions have to tell the client.
    pub(super) notices: Mutex<Vec<SqlError>>,
    pub(super) listing: Listing,
    pub(super) usage: Arc<SessionUsage>,
}

/// Snapshot and stamp, and the catalog that they give.
type ShownCatalog = ((u64, u64), Arc<Catalog>);

impl Facts {
    pub(crate) fn new(database: SqlDatabase, parameters: SessionParameters, settings: Settings) -> Facts {
        let seed = random_u64();
        let SessionParameters {
            user,
            database: given_database,
            process_id,
            authority,
            orders,
            client,
            tls,
            ..
        } = parameters;
        Facts {
            catalog: Mutex::new(database.catalog()),
            shown: Mutex::default(),
            started: database.now(),
            client,
            tls,
            activity: Activity::default(),
            usage: Arc::new(SessionUsage::new(database.usage(), process_id)),
            awaiting_safety: AtomicBool::new(false),
            database,
            user,
            connected: OnceLock::new(),
            given_database,
            process_id,
            authority,
            orders,
            settings: Mutex::new(settings),
            has_set: AtomicBool::new(false),
            transaction_id: AtomicU64::new(0),
            random: Mutex::new(SplitMix::new(seed)),
            fixed: OnceLock::new(),
            sequences: Mutex::default(),
            rests_on: AtomicU64::new(0),
            advisory: Advisory::default(),
            news: News::default(),
            temporary: Temporary::default(),
            notices: Mutex::default(),
            listing: Listing::default(),
        }
    }

    /// From now on what is asked for here is the same at every node.
    pub(super) fn fix(&self, fixed: Fixed) {
        // A session executes one program.
        let _ = self.fixed.set(fixed);
    }

    /// See [`Facts::fix`].
    pub(crate) fn fixed(&self) -> Option<&Fixed> {
        self.fixed.get()
    }

    /// Writes down which numbers were taken.
    pub(super) fn write_fixed(&self, transaction: &mut Transaction) -> Result<()> {
        self.fixed().map_or(Ok(()), |fixed| fixed.write(transaction))
    }

    /// Seeds the generator.
    pub(super) fn seed(&self, seed: u64) {
        *self.random.lock() = SplitMix::new(seed);
    }

    /// Now, in microseconds since 2000-01-01 UTC.
    pub(crate) fn now(&self) -> i64 {
        self.fixed().map_or_else(|| self.database.now(), |fixed| fixed.now)
    }

    /// Looks at or changes the settings.
    pub(crate) fn with_settings<T>(&self, action: impl FnOnce(&mut Settings) -> T) -> T {
        action(&mut self.settings.lock())
    }

    pub(crate) fn effective(&self) -> Arc<Effective> {
        self.settings.lock().effective().clone()
    }

    /// Whether a function has changed a setting since this was asked last.
    pub(super) fn take_has_set(&self) -> bool {
        self.has_set.load(Ordering::Relaxed) && self.has_set.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn mark(&self) -> Mark {
        self.settings.lock().mark()
    }

    pub(crate) fn set_catalog(&self, catalog: &Arc<Catalog>) {
        let mut current = self.catalog.lock();
        if !Arc::ptr_eq(&current, catalog) {
            *current = catalog.clone();
        }
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.lock().clone()
    }

    pub(super) fn shown_catalog(&self, key: (u64, u64)) -> Option<Arc<Catalog>> {
        self.shown.lock().as_ref().filter(|(known, _)| *known == key).map(|(_, catalog)| catalog.clone())
    }

    pub(super) fn keep_shown_catalog(&self, key: (u64, u64), catalog: &Arc<Catalog>) {
        *self.shown.lock() = Some((key, catalog.clone()));
    }

    /// The transaction has ended.
    pub(super) fn forget_shown_catalog(&self) {
        *self.shown.lock() = None;
    }

    /// `current_database()`.
    pub(crate) fn database_name(&self) -> String {
        self.database.catalog().own_name(&self.given_database).to_owned()
    }

    /// Id of the open transaction, 0 if there is none.
    pub(crate) fn transaction(&self) -> u64 {
        self.transaction_id.load(Ordering::Relaxed)
    }

    pub(crate) fn set_awaiting_safety(&self, waits: bool) {
        self.awaiting_safety.store(waits, Ordering::Relaxed);
    }

    /// Whether a transaction waits until those that run have ended, for a safe snapshot.
    pub(crate) fn awaits_safety(&self) -> bool {
        self.awaiting_safety.load(Ordering::Relaxed)
    }

    pub(crate) fn set_transaction_id(&self, id: u64) {
        self.transaction_id.store(id, Ordering::Relaxed);
    }

    /// Something was looked at that only this commit makes safe to show.
    #[inline]
    pub(crate) fn rest_on(&self, csn: u64) {
        if csn > self.rests_on.load(Ordering::Relaxed) {
            self.rests_on.fetch_max(csn, Ordering::Relaxed);
        }
    }

    /// The same of what is known of running, prepared and ended transactions: it is as new as the
    /// last commit.
    pub(crate) fn rest_on_everything(&self) {
        self.rest_on(self.database.engine().certified());
    }

    pub(crate) fn rests_on(&self) -> u64 {
        self.rests_on.load(Ordering::Relaxed)
    }

    /// The client was told that what its answers rested on is lost.
    pub(crate) fn rest_on_nothing(&self) {
        self.rests_on.store(0, Ordering::Relaxed);
    }

    /// The schemas that unqualified names are looked up in, those that exist: that of the session's
    /// temporary objects first and `pg_catalog` next, unless they are named.
    pub(crate) fn lookup_path(&self, catalog: &Catalog) -> Vec<String> {
        let mut path = self.named_path(catalog);
        if !path.iter().any(|schema| schema == "pg_catalog") {
            path.insert(0, "pg_catalog".to_owned());
        }
        self.with_temporary(catalog, path)
    }

    /// The same without `pg_catalog`, unless that is named.
    pub(crate) fn binding_path(&self, catalog: &Catalog) -> Vec<String> {
        self.with_temporary(catalog, self.named_path(catalog))
    }

    /// The schemas of `search_path` that exist.
    pub(crate) fn named_path(&self, catalog: &Catalog) -> Vec<String> {
        let effective = self.effective();
        let names = effective.search_path.iter().filter_map(|name| match name.as_str() {
            "$user" => Some(effective.user.clone()),
            TEMPORARY_ALIAS => self.temporary.schema(catalog).map(|schema| schema.name.clone()),
            _ => Some(name.clone()),
        });
        let rights = self.rights(catalog);
        let is_in_sight = |name: &String| {
            let schema = catalog.schema(name);
            schema
                .is_some_and(|schema| rights.as_deref().is_none_or(|rights| catalog.may_use(rights, schema)))
        };
        names.filter(is_in_sight).collect()
    }

    /// What a plan's names were looked up by, as plans are told apart: two users' `$user` is two
    /// schemas, if there are such, and who may not use a schema finds nothing in it.
    pub(crate) fn plan_path(&self, search_path: &[String], catalog: &Catalog) -> Vec<String> {
        let own = |user: &str| catalog.schema(user).is_some();
        let name = |name: &String| {
            if name != "$user" {
                return name.clone();
            }
            let user = self.current_user();
            if own(&user) { user } else { name.clone() }
        };
        let mut path: Vec<String> = search_path.iter().map(name).collect();
        if let Some(rights) = self.rights(catalog) {
            path.retain(|name| catalog.schema(name).is_none_or(|schema| catalog.may_use(&rights, schema)));
        }
        path
    }

    /// Puts the schema of the session's temporary objects in front, if there is one.
    fn with_temporary(&self, catalog: &Catalog, mut path: Vec<String>) -> Vec<String> {
        if let Some(schema) = self.temporary.schema(catalog)
            && !path.contains(&schema.name)
        {
            path.insert(0, schema.name.clone());
        }
        path
    }
}

pub(super) fn random_u64() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// Names of objects as the catalog and the search path are when they are asked for.
pub(crate) struct LiveNames(pub(crate) Arc<Facts>);

impl LiveNames {
    fn now(&self) -> CatalogNames {
        let catalog = self.0.catalog();
        let path = self.0.lookup_path(&catalog);
        CatalogNames::new(catalog, path, self.0.current_user())
    }
}

impl ObjectNames for LiveNames {
    fn is_own_database(&self, name: &str) -> bool {
        self.0.catalog().is_own_name(name)
    }

    fn relation_oid(&self, name: &str) -> Option<u32> {
        self.now().relation_oid(name)
    }

    fn relation_name(&self, oid: u32) -> Option<String> {
        self.now().relation_name(oid)
    }

    fn function_oid(&self, name: &str) -> Option<u32> {
        self.now().function_oid(name)
    }

    fn has_several_functions(&self, name: &str) -> bool {
        self.now().has_several_functions(name)
    }

    fn function_name(&self, oid: u32) -> Option<String> {
        self.now().function_name(oid)
    }

    fn procedure_oid(&self, name: &str, arguments: &[u32]) -> Option<u32> {
        self.now().procedure_oid(name, arguments)
    }

    fn procedure_name(&self, oid: u32) -> Option<String> {
        self.now().procedure_name(oid)
    }

    fn operator_name(&self, oid: u32, with_operands: bool) -> Option<String> {
        self.now().operator_name(oid, with_operands)
    }

    fn schema_oid(&self, name: &str) -> Option<u32> {
        self.now().schema_oid(name)
    }

    fn schema_name(&self, oid: u32) -> Option<String> {
        self.now().schema_name(oid)
    }

    fn role_oid(&self, name: &str) -> Option<u32> {
        self.now().role_oid(name)
    }

    fn role_name(&self, oid: u32) -> Option<String> {
        self.now().role_name(oid)
    }

    fn user_type(&self, schema: Option<&str>, name: &str) -> Option<Type> {
        self.now().user_type(schema, name)
    }

    fn named_type_oid(&self, name: &str) -> Option<u32> {
        self.now().named_type_oid(name)
    }

    fn type_name(&self, oid: u32) -> Option<String> {
        self.now().type_name(oid)
    }

    fn enum_position(&self, ty: u32, label: &str) -> Option<i64> {
        self.now().enum_position(ty, label)
    }

    fn enum_label(&self, ty: u32, position: i64) -> Option<String> {
        // Asked for each value of a result: no search path is made for it.
        self.0.catalog().enum_by_oid(ty)?.label_at(position).map(str::to_owned)
    }

    fn enum_positions(&self, ty: u32) -> Vec<i64> {
        self.now().enum_positions(ty)
    }
}

impl SessionView for Facts {
    fn setting(&self, name: &str) -> Option<String> {
        self.server_setting(name).or_else(|| self.settings.lock().show(name).ok())
    }

    fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String> {
        if name.starts_with("transaction_") {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("set_config of \"{name}\" is not supported"),
            )
            .with_hint("Use SET TRANSACTION."));
        }
        if self.set_server_setting(name, value)? {
            return Ok(self.server_setting(name).unwrap_or_default());
        }
        self.has_set.store(true, Ordering::Relaxed);
        if self.set_identity(name, value, local)? {
            return self.settings.lock().show(name);
        }
        self.check_may_set(name)?;
        let mut settings = self.settings.lock();
        settings.set(name, value, local)?;
        settings.show(name)
    }

    fn setting_source(&self, name: &str) -> Option<(&'static str, String)> {
        let settings = self.settings.lock();
        settings.source(name).map(|(source, reset)| (source, reset.to_owned()))
    }

    fn user(&self) -> String {
        self.current_user()
    }

    fn session_user(&self) -> String {
        self.effective().session_user.clone()
    }

    fn database(&self) -> String {
        self.database_name()
    }

    fn search_path(&self, implicit: bool) -> Vec<String> {
        let catalog = self.catalog();
        if implicit { self.lookup_path(&catalog) } else { self.named_path(&catalog) }
    }

    fn process_id(&self) -> i32 {
        self.process_id
    }

    fn transaction_id(&self) -> u64 {
        self.transaction_id.load(Ordering::Relaxed)
    }

    fn clock(&self) -> i64 {
        self.now()
    }

    fn random(&self) -> f64 {
        // 53 bits: every such number is a double of its own.
        (self.random.lock().bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn set_seed(&self, seed: f64) {
        *self.random.lock() = SplitMix::new(seed.to_bits());
    }

    fn random_bytes(&self) -> [u8; 16] {
        if self.fixed().is_none() {
            return *uuid::Uuid::new_v4().as_bytes();
        }
        let mut random = self.random.lock();
        let [high, low] = [random.bits(), random.bits()];
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }

    fn catalog(&self) -> Option<Arc<Catalog>> {
        Some(Facts::catalog(self))
    }

    fn note_pause(&self, begins: bool) {
        self.activity.pause(begins);
    }

    fn server(&self) -> &dyn ServerView {
        self
    }

    fn version(&self) -> String {
        "PostgreSQL 15.0 (Cognate 0.1.0)".to_owned()
    }
}
