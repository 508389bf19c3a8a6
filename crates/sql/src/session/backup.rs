//! BACKUP: everything that is committed, as a stream of bytes in the place of a COPY's.
//!
//! ```text
//! client: BACKUP
//! server: CopyOutResponse (binary, no columns), CopyData with a tar archive, CopyDone, BACKUP
//! ```
//!
//! The engine chooses the commit that it goes up to and keeps the files (`cognate_engine::Backup`);
//! here they are read, a portion whenever the client has taken the one before. No transaction is
//! open meanwhile, so versions are not kept for it. When the portal goes, because everything was
//! sent or its client is not there any more, the files are let go.
//!
//! It is the superuser's: a backup has what every user has stored.

use cognate_engine::Backup;

use super::maintenance::require_alone;
use super::portal::PortalState;
use super::{CommandTag, CopyFormat, CopyInFormat, Fetch, Portal, RowSink, Session, SinkState};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt as _;

/// Bytes that are read at once.
const PORTION: usize = 64 << 10;

/// A BACKUP that is being sent.
#[derive(Debug)]
pub(crate) struct BackupOut {
    backup: Box<Backup>,
    announced: bool,
}

impl Session {
    /// Begins BACKUP. `alone`: it is a transaction of its own. 42501, 25001.
    pub(super) async fn start_backup(&mut self, alone: bool) -> Result<PortalState> {
        let (catalog, _) = self.catalog_with_state();
        if !self.facts.is_superuser(&catalog) {
            return Err(SqlError::new(
                sqlstate::INSUFFICIENT_PRIVILEGE,
                "permission denied to take a backup",
            )
            .with_hint("It has what every user has stored, and is the superuser's to take (--superuser)."));
        }
        require_alone(alone, "BACKUP")?;
        self.database.nodes().check_alike()?;
        let backup = self.in_background(|engine| engine.backup()).await?;
        Ok(PortalState::Backup(BackupOut { backup: Box::new(backup), announced: false }))
    }

    /// Gives the next bytes.
    pub(super) fn give_backup(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
    ) -> Result<Fetch> {
        let PortalState::Backup(out) = &mut portal.state else {
            return Err(SqlError::internal("the portal is no BACKUP"));
        };
        if !std::mem::replace(&mut out.announced, true) {
            return Ok(Fetch::CopyOut(CopyInFormat { format: CopyFormat::Binary, columns: 0 }));
        }
        let interrupts = self.interrupts();
        loop {
            interrupts.check()?;
            let Some(bytes) = out.backup.next(PORTION)? else { break };
            if sink.copy_out(&bytes) == SinkState::Full {
                return Ok(Fetch::SinkFull);
            }
        }
        let tag = CommandTag::Plain("BACKUP");
        portal.state = PortalState::Done(tag);
        Ok(Fetch::Complete(tag))
    }
}
