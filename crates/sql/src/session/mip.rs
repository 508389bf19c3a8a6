//! Sibling transactions in a session: BEGIN, PREPARE, COMMIT, ROLLBACK, REFUSE, SHOW and FORGET of
//! families (MIP paper, §3).
//!
//! ```text
//! BEGIN MIP <x, 1>                      a block begins; no rows. As a function: the instance, and that the family is not decided
//! UPDATE …                              as in any block
//! PREPARE MIP <x, 1> 'buy' 'order 7'    the block ends; the family's table
//! COMMIT MIP <x, 1>                     outside of blocks, from any session; the family's table
//! BEGIN MIP <x, 2>                      the family is decided: its table; as a function, with that in a column
//! UPDATE …                              MI015, with the stored result: the block that has begun takes nothing but its end
//! ROLLBACK                              the end; or COMMIT, or PREPARE MIP, which answers the table
//! ```
//!
//! So a driver that does not look at what BEGIN MIP answers cannot execute a request again: not in
//! autocommit mode either, which it would be in without the block.
//!
//! A PREPARE that fails, for whatever reason, leaves the instance aborted for ever, and that is
//! durable before the client hears of it: an application server withdraws the instance at other
//! sites then. What ended otherwise (an error in a statement, a lost connection) is aborted for
//! ever as soon as anybody is shown it.
//!
//! The block knows its instance also after it has failed: PREPARE then shows what became of the
//! family, since an application server wants to know that and nothing else.
//!
//! A plain ROLLBACK gives the instance up, as a lost connection does: nothing is stored of that
//! until somebody is told. ROLLBACK MIP withdraws it, and whoever hears that it has succeeded may
//! rely on it: that the instance will never be prepared is durable before the answer, in the
//! session's own block as from elsewhere.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use cognate_engine::sibling::{
    Begun, Entry, Instance, Limits, Mipt, Outcome, Refusal, State, Text, Told, Xid,
};

use super::modes::isolation_of;
use super::outcome::Asked;
use super::planning::parameter_type;
use super::portal::PortalState;
use super::state::TransactionState;
use super::utility::Seldom;
use super::{Block, CommandTag, Fetch, Open, OutputColumn, Portal, RowSink, Session};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::{MipArgument, MipOperation, Statement};
use crate::types::{Datum, Type, TypeId};

/// The columns of an answer, made once: a family's table, and for BEGIN as a function whether the
/// family is decided.
pub(super) fn columns(operation: MipOperation, arguments: &[MipArgument]) -> Arc<[OutputColumn]> {
    static TABLE: LazyLock<Arc<[OutputColumn]>> = LazyLock::new(|| make_columns(4));
    static BEGIN: LazyLock<Arc<[OutputColumn]>> = LazyLock::new(|| make_columns(5));
    let is_function = arguments.first().is_some_and(MipArgument::is_of_function);
    Arc::clone(if is_function && operation == MipOperation::Begin { &BEGIN } else { &TABLE })
}

fn make_columns(count: usize) -> Arc<[OutputColumn]> {
    let column = |(name, id): (&str, TypeId)| OutputColumn {
        name: name.to_owned(),
        ty: Type::new(id),
        table_oid: 0,
        attribute_number: 0,
    };
    let all = [
        ("xinst", TypeId::Int8),
        ("state", TypeId::Text),
        ("result", TypeId::Text),
        ("request", TypeId::Text),
        ("decided", TypeId::Bool),
    ];
    all.into_iter().take(count).map(column).collect()
}

/// Types of the parameters, where they stand. 42P18 for one that is not used.
pub(super) fn parameter_types(arguments: &[MipArgument], declared: &[Option<Type>]) -> Result<Vec<Type>> {
    let mut types: Vec<Option<Type>> = declared.to_vec();
    for (place, argument) in arguments.iter().enumerate() {
        let MipArgument::Parameter(number) = argument else { continue };
        let expected = Type::new(if place == 1 { TypeId::Int8 } else { TypeId::Text });
        if types.len() < *number {
            types.resize(*number, None);
        }
        types[*number - 1].get_or_insert(expected);
    }
    types.into_iter().enumerate().map(|(place, ty)| parameter_type(place, ty)).collect()
}

/// One line of a family's table, as a row of the longest [`columns`].
fn row(table: &Mipt, entry: &Entry) -> [Datum; 5] {
    let text = |text: Option<&Text>| text.map_or(Datum::Null, |text| Datum::from(&**text));
    let state = match entry.state {
        State::Unknown => "unknown",
        State::Active => "active",
        State::Prepared => "prepared",
        State::Aborted => "aborted",
        State::Committed => "committed",
    };
    [
        Datum::Int8(entry.instance.get()),
        Datum::from(state),
        text(entry.result.as_ref()),
        text(table.request.as_ref()),
        Datum::Bool(entry.state == State::Committed),
    ]
}

fn done(operation: MipOperation) -> PortalState {
    PortalState::Done(CommandTag::Plain(operation.words()))
}

fn answer(operation: MipOperation, table: Mipt) -> PortalState {
    PortalState::Family(Box::new(FamilyRows { table, sent: 0, tag: CommandTag::Plain(operation.words()) }))
}

/// A family's table on its way to the client.
#[derive(Debug)]
pub(crate) struct FamilyRows {
    table: Mipt,
    sent: usize,
    tag: CommandTag,
}

fn in_ordinary_transaction(operation: MipOperation) -> SqlError {
    let words = operation.words();
    SqlError::new(
        sqlstate::MIP_IN_ORDINARY_TRANSACTION,
        format!("{words} cannot run inside an ordinary transaction"),
    )
    .with_hint("Send it in autocommit mode, without BEGIN before it.")
}

impl Session {
    /// Gives the lines of a family's table.
    pub(super) fn send_family(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let PortalState::Family(rows) = &mut portal.state else { return Ok(Fetch::Empty) };
        let columns = portal.columns.as_deref().unwrap_or_default();
        let mut given = 0;
        while let Some(entry) = rows.table.entries.get(rows.sent) {
            given += 1;
            rows.sent += 1;
            let row = row(&rows.table, entry);
            let state = sink.row(columns, &portal.formats, &row[..columns.len()], &self.format)?;
            if let Some(stop) = Fetch::stop(given, max_rows, state) {
                return Ok(stop);
            }
        }
        let tag = rows.tag;
        portal.state = PortalState::Done(tag);
        Ok(Fetch::Complete(tag))
    }

    /// An error if the open instance has no future any more.
    #[inline]
    pub(super) fn check_sibling(&self) -> Result<()> {
        match &self.open {
            Some(open) => open.engine.check_member().map_err(|error| self.name_failure(error)),
            None => Ok(()),
        }
    }

    /// Resolves when the open transaction must not go on: then `give_up` lets go of what it holds.
    pub fn doomed(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        self.open.as_ref()?.engine.doomed()
    }

    /// MI015, with what became of the family, unless the statement fits a block that was too late
    /// for it.
    #[cold]
    pub(super) fn check_decided(&self, statement: Option<&Statement>) -> Result<()> {
        if statement.is_none_or(|statement| super::statement::fits_decided_block(&statement.command)) {
            return Ok(());
        }
        let Some(outcome) = &self.decided else {
            return Err(SqlError::internal("a block of a decided family has no outcome"));
        };
        let message = format!("the family is decided: instance {} is committed", outcome.winner);
        Err(SqlError::new(sqlstate::MIP_DECIDED, message)
            .with_detail(format!("Its result is: {}", outcome.result))
            .with_hint("Nothing is executed again. End the block by ROLLBACK, or by PREPARE MIP, which answers the family's table."))
    }

    /// The values of a statement about a family: XID, request and result as far as it has them, and
    /// the instance.
    pub(super) fn mip_values(
        &mut self,
        arguments: &[MipArgument],
        portal: &Portal,
    ) -> Result<(Vec<Text>, i64)> {
        let mut texts = Vec::with_capacity(3);
        let mut number = 0;
        for (place, argument) in arguments.iter().enumerate() {
            match place {
                1 => number = self.mip_number(argument, portal)?,
                _ => texts.push(self.mip_text(argument, place, portal)?),
            }
        }
        Ok((texts, number))
    }

    /// A statement about a family.
    #[inline(never)]
    pub(super) fn mip(
        &mut self,
        operation: MipOperation,
        (texts, number): (Vec<Text>, i64),
        is_function: bool,
    ) -> Seldom<'_, PortalState> {
        Box::pin(self.mip_here(operation, (texts, number), is_function))
    }

    async fn mip_here(
        &mut self,
        operation: MipOperation,
        (texts, number): (Vec<Text>, i64),
        is_function: bool,
    ) -> Result<PortalState> {
        let xid = Xid::new(Text::clone(&texts[0])).map_err(refused)?;
        if let MipOperation::Show | MipOperation::Forget = operation {
            return self.mip_of_family(operation, &xid).await;
        }
        let instance = Instance::new(number).map_err(refused)?;
        match operation {
            MipOperation::Begin => self.begin_mip(xid, instance, is_function).await,
            MipOperation::Prepare => self.prepare_mip(xid, instance, &texts[1], &texts[2]).await,
            _ => self.decide_mip(operation, xid, instance).await,
        }
    }

    fn mip_text(&mut self, argument: &MipArgument, place: usize, portal: &Portal) -> Result<Text> {
        let evaluated;
        let value = match argument {
            MipArgument::Text(text) | MipArgument::Number(text) => return Ok(Text::clone(text)),
            MipArgument::Parameter(number) => portal.parameters.get(*number - 1).unwrap_or(&Datum::Null),
            MipArgument::Expression(expr) => {
                evaluated = self.evaluate_argument(expr, Type::new(TypeId::Text), place + 1)?;
                &evaluated
            }
        };
        match value {
            Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => Ok(Text::from(text.as_str())),
            Datum::Null => Err(SqlError::new(
                sqlstate::NULL_VALUE_NOT_ALLOWED,
                "XID, instance, request and result must not be null",
            )),
            other => Ok(self.parameter_text(other, argument, portal).into()),
        }
    }

    fn parameter_text(&self, value: &Datum, argument: &MipArgument, portal: &Portal) -> String {
        let MipArgument::Parameter(number) = argument else { return String::new() };
        let ty = portal.prepared.parameter_types().get(*number - 1).copied();
        value.to_text_string(ty.unwrap_or(Type::new(TypeId::Text)), &self.format)
    }

    fn mip_number(&mut self, argument: &MipArgument, portal: &Portal) -> Result<i64> {
        let out_of_range = || {
            SqlError::new(
                sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                "the instance number is out of range for type bigint",
            )
        };
        let evaluated;
        let value = match argument {
            MipArgument::Number(digits) => return digits.parse().map_err(|_| out_of_range()),
            MipArgument::Parameter(number) => portal.parameters.get(*number - 1).unwrap_or(&Datum::Null),
            MipArgument::Expression(expr) => {
                evaluated = self.evaluate_argument(expr, Type::new(TypeId::Int8), 2)?;
                &evaluated
            }
            MipArgument::Text(_) => &Datum::Null,
        };
        match value {
            Datum::Int8(number) => Ok(*number),
            Datum::Int4(number) => Ok(i64::from(*number)),
            Datum::Int2(number) => Ok(i64::from(*number)),
            Datum::Null => {
                Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "the instance number must not be null"))
            }
            other => self.parameter_text(other, argument, portal).parse().map_err(|_| out_of_range()),
        }
    }

    /// MI040 in an ordinary transaction, MI041 in an instance.
    fn refuse_in_block(&self, operation: MipOperation) -> Result<()> {
        match self.block {
            Block::None => Ok(()),
            Block::Implicit if self.open.is_none() => Ok(()),
            _ if self.sibling.is_some() => Err(SqlError::new(
                sqlstate::MIP_OTHER_TRANSACTION,
                format!("{} does not fit the open instance", operation.words()),
            )
            .with_hint("Prepare it or roll it back first.")),
            _ => Err(in_ordinary_transaction(operation)),
        }
    }

    async fn begin_mip(&mut self, xid: Xid, instance: Instance, is_function: bool) -> Result<PortalState> {
        self.refuse_in_block(MipOperation::Begin)?;
        let isolation = isolation_of(&self.effective.default_isolation);
        let begun = match self.database.engine().begin_instance(xid.clone(), instance, isolation) {
            Err(cognate_engine::Error::Refused(Refusal::InstanceAborted { .. }))
                if self.database.engine().is_node() =>
            {
                // Another node might still let it begin.
                self.check_majority()?;
                let engine = self.database.engine().clone();
                let asked = engine.begin_instance_in_order(xid.clone(), instance, isolation);
                self.in_order(Asked::OfFamily(&xid), asked).await??
            }
            begun => begun?,
        };
        match begun {
            Begun::Decided(told) => {
                told.durable.await?;
                self.enter_implicit();
                self.block = Block::Decided;
                self.sibling = Some((xid, instance));
                self.decided = outcome(&told.table).map(Box::new);
                Ok(answer(MipOperation::Begin, told.table))
            }
            Begun::Active(engine) => {
                self.enter_implicit();
                self.block = Block::Explicit;
                // Its number is used up: what the message does from here on is not run again.
                self.commits += 1;
                self.modes.isolation = isolation;
                self.modes.read_only = self.effective.default_read_only;
                self.facts.set_transaction_id(engine.id());
                let mut state =
                    TransactionState::new(self.modes.read_only, self.memory_limit, &self.facts.usage);
                state.locks_reads = self.is_two_phase();
                state.begun_ahead = true;
                self.open = Some(Open { engine: *engine, state });
                self.sibling = Some((xid, instance));
                if !is_function {
                    return Ok(done(MipOperation::Begin));
                }
                let entries = vec![Entry { instance, state: State::Active, result: None }];
                Ok(answer(MipOperation::Begin, Mipt { request: None, floor: 0, entries }))
            }
        }
    }

    async fn prepare_mip(
        &mut self,
        xid: Xid,
        instance: Instance,
        request: &Text,
        result: &Text,
    ) -> Result<PortalState> {
        let own = self.sibling.as_ref().map(|sibling| sibling.0 == xid && sibling.1 == instance);
        match (own, self.block) {
            (Some(true), Block::Explicit) => {}
            (Some(true), _) => {
                self.rollback();
                return self.late_prepare(&xid, instance, true, request).await;
            }
            _ => {
                self.refuse_in_block(MipOperation::Prepare)?;
                return self.late_prepare(&xid, instance, false, request).await;
            }
        }
        match self.prepare_open(&xid, request, result).await {
            Some(Ok(table)) => Ok(answer(MipOperation::Prepare, table)),
            Some(Err(error)) => Err(self.unprepared(&xid, instance, error).await),
            None => self.late_prepare(&xid, instance, true, request).await,
        }
    }

    /// Prepares the open instance. The block ends, whatever comes of it. `None`: there is no
    /// transaction any more.
    async fn prepare_open(&mut self, xid: &Xid, request: &Text, result: &Text) -> Option<Result<Mipt>> {
        let transaction = self.facts.transaction();
        if let Err(refusal) = self
            .check_no_temporary()
            .and_then(|()| self.check_no_held())
            .and_then(|()| self.check_no_advisory("PREPARE MIP"))
            .and_then(|()| self.check_no_news())
            .and_then(|()| self.check_is_here_to_prepare("PREPARE MIP"))
            // It may have begun before this node lost its majority, or differed from the others.
            .and_then(|()| self.check_majority())
        {
            self.rollback();
            return Some(Err(refusal));
        }
        if let Err(error) = self.before_commit().await {
            self.rollback();
            return Some(Err(error));
        }
        let Some(Open { engine, state }) = self.open.take() else {
            self.rollback();
            return None;
        };
        if !state.catalog.is_empty() {
            drop(engine);
            self.rollback();
            return Some(Err(SqlError::unsupported("changing the catalog in an instance of a family")));
        }
        self.facts.rest_on(engine.rests_on());
        let (note, limits) = (self.prepared_note(), Limits::default());
        let asked = engine.prepare_instance_in_order(request, result, note, limits);
        let prepared = match self.in_order(Asked::OfFamily(xid), asked).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.rollback();
                return Some(Err(error));
            }
        };
        match prepared {
            Ok(told) => {
                self.keep_token_at_node(told.csn);
                let ended = self.end_prepared(told.durable).await;
                Some(ended.map(|()| told.table))
            }
            Err(error) => Some(Err(self.end_unprepared(error, transaction))),
        }
    }

    /// An instance could not be prepared. That it is aborted for ever is durable before anybody
    /// hears of the failure.
    async fn unprepared(&mut self, xid: &Xid, instance: Instance, error: SqlError) -> SqlError {
        let told = match self.family_without(xid, instance).await {
            Err(unknown) => return unknown,
            Ok(Ok(told)) => told.durable.await,
            Ok(Err(cognate_engine::Error::Refused(_))) => Ok(()),
            Ok(Err(other)) => Err(other),
        };
        told.map_or_else(SqlError::from, |()| error)
    }

    /// PREPARE without an open instance: what became of the family. `is_own`: the session has had
    /// the instance, and it has ended.
    async fn late_prepare(
        &mut self,
        xid: &Xid,
        instance: Instance,
        is_own: bool,
        request: &Text,
    ) -> Result<PortalState> {
        let family = match is_own {
            true => self.family_without(xid, instance).await?,
            false => self.family(xid).await?,
        };
        let told = match family {
            Err(cognate_engine::Error::Refused(Refusal::FamilyUnknown)) if !is_own => {
                return Err(refused(Refusal::InstanceUnknown { instance }));
            }
            told => told?,
        };
        let Told { mut table, csn, durable } = told;
        self.keep_token_at_node(csn);
        durable.await?;
        if table.request.as_ref().is_some_and(|known| known != request) {
            return Err(refused(Refusal::RequestDiffers));
        }
        let decided = table.entries.iter().any(|entry| entry.state == State::Committed);
        if !decided {
            match table.entries.iter().find(|entry| entry.instance == instance).map(|entry| entry.state) {
                Some(State::Aborted) => {}
                None if is_own || instance.get() < table.floor => {}
                None => return Err(refused(Refusal::InstanceUnknown { instance })),
                // Under its own number another session, perhaps of another node, has prepared.
                Some(state) if is_own && state != State::Prepared => {}
                Some(_) => {
                    let highest = table.entries.last().map_or(instance, |entry| entry.instance);
                    return Err(refused(Refusal::InstanceInUse { instance, highest }));
                }
            }
        }
        self.veil_family(xid, &mut table);
        Ok(answer(MipOperation::Prepare, table))
    }

    async fn decide_mip(
        &mut self,
        operation: MipOperation,
        xid: Xid,
        instance: Instance,
    ) -> Result<PortalState> {
        let own = self.sibling.as_ref().is_some_and(|sibling| sibling.0 == xid && sibling.1 == instance);
        if operation == MipOperation::Rollback && own {
            return self.withdraw_own(&xid, instance).await;
        }
        if self.block == Block::Decided && self.sibling.as_ref().is_some_and(|sibling| sibling.0 == xid) {
            self.rollback();
        }
        self.refuse_in_block(operation)?;
        // What REFUSE ends is nobody's promise.
        if operation != MipOperation::Refuse {
            self.check_prepared_instance(&xid, instance).await?;
        }
        self.check_majority()?;
        let engine = self.database.engine().clone();
        let asked: Pin<Box<dyn Future<Output = _> + Send>> = match operation {
            MipOperation::Commit => Box::pin(engine.commit_instance_in_order(&xid, instance)),
            MipOperation::Refuse => Box::pin(engine.refuse_instances_in_order(&xid, instance)),
            _ => Box::pin(engine.rollback_instance_in_order(&xid, instance)),
        };
        let Told { mut table, csn, durable } = self.in_order(Asked::OfFamily(&xid), asked).await??;
        self.keep_token_at_node(csn);
        // Whatever was decided: a second time it would be a mistake, or tell something else.
        self.commits += 1;
        durable.await?;
        self.veil_family(&xid, &mut table);
        Ok(answer(operation, table))
    }

    /// ROLLBACK MIP of the session's own instance. Its block ends, whatever comes of it.
    ///
    /// # Errors
    /// MI010 and MI014 if another node has prepared, or committed, what it ran under this number.
    async fn withdraw_own(&mut self, xid: &Xid, instance: Instance) -> Result<PortalState> {
        let was_begun = self.decided.is_none();
        self.rollback();
        // Of a decided family nothing was begun.
        if was_begun {
            self.check_majority()?;
            match self.family_without(xid, instance).await? {
                Ok(Told { table, csn, durable }) => {
                    self.keep_token_at_node(csn);
                    durable.await?;
                    check_withdrawn(&table, instance)?;
                }
                Err(cognate_engine::Error::Refused(Refusal::Forgotten)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.await_durable().await?;
        Ok(done(MipOperation::Rollback))
    }

    async fn mip_of_family(&mut self, operation: MipOperation, xid: &Xid) -> Result<PortalState> {
        if operation == MipOperation::Show {
            let Told { mut table, durable, .. } = self.family(xid).await??;
            durable.await?;
            self.veil_family(xid, &mut table);
            return Ok(answer(operation, table));
        }
        self.refuse_in_block(operation)?;
        self.check_majority()?;
        let engine = self.database.engine().clone();
        let asked = engine.forget_family_in_order(xid);
        let durable = self.in_order(Asked::OfFamily(xid), asked).await??;
        self.commits += 1;
        durable.await?;
        Ok(done(operation))
    }

    /// The table of a family of which the session has had an instance that was not prepared. It
    /// tells that the instance is aborted for ever, also if the engine has forgotten by now that it
    /// was begun, as it keeps few families in memory, and small ones. Its siblings are left alone:
    /// a slower one may still get through.
    async fn family_without(
        &mut self,
        xid: &Xid,
        instance: Instance,
    ) -> Result<std::result::Result<Told, cognate_engine::Error>> {
        let engine = self.database.engine().clone();
        self.in_order(Asked::OfFamily(xid), engine.family_without_in_order(xid, instance)).await
    }

    /// A family's table, with whatever was acknowledged at any node.
    async fn family(&mut self, xid: &Xid) -> Result<std::result::Result<Told, cognate_engine::Error>> {
        let engine = self.database.engine().clone();
        self.in_order(Asked::OfFamily(xid), engine.family_in_order(xid)).await
    }
}

/// An error if an instance that is withdrawn is prepared or committed all the same.
fn check_withdrawn(table: &Mipt, instance: Instance) -> Result<()> {
    let state = table.entries.iter().find(|entry| entry.instance == instance).map(|entry| entry.state);
    match state {
        Some(State::Committed) => Err(refused(Refusal::DecidedOtherwise { winner: instance })),
        Some(State::Prepared) => {
            let highest = table.entries.last().map_or(instance, |entry| entry.instance);
            Err(refused(Refusal::InstanceInUse { instance, highest }))
        }
        Some(State::Aborted | State::Active | State::Unknown) | None => Ok(()),
    }
}

/// The decision that a table shows.
fn outcome(table: &Mipt) -> Option<Outcome> {
    let winner = table.entries.iter().find(|entry| entry.state == State::Committed)?;
    let (result, request) =
        (winner.result.clone().unwrap_or_default(), table.request.clone().unwrap_or_default());
    Some(Outcome { winner: winner.instance, result, request })
}

fn refused(refusal: Refusal) -> SqlError {
    cognate_engine::Error::from(refusal).into()
}
