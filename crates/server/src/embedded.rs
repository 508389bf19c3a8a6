//! A server without a listening socket: its connections are pipes inside the process, over which
//! any client library speaks PostgreSQL's protocol as it would over a network. All of them in a
//! process are served by the same threads.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cognate_env::RealDisk;
use tokio::net::UnixStream;

use crate::assemble::{StartError, close_database, end_sessions, no_threads, open_database, serving};
use crate::config::{Config, Settings};
use crate::crew::{Crew, Incoming};
use crate::pg::handshake;
use crate::server::{Access, Server};

/// An open database that is reached from inside the process. Clones are handles to the same one.
#[derive(Clone)]
pub struct Embedded {
    server: Arc<Server>,
    grace: Duration,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens a folder, making an empty database if there is none, and recovers what was committed.
    /// Everything else is as a server's settings are if nothing is said.
    ///
    /// # Errors
    /// The folder is open elsewhere, damaged, or cannot be read or written.
    pub async fn open(data: impl Into<PathBuf>) -> Result<Embedded, StartError> {
        let settings = Settings { data: Some(data.into()), ..Settings::default() };
        let config = Config::resolve(settings).map_err(|error| StartError(error.to_string()))?;
        let access = Access::read(&config).map_err(StartError)?;
        let crew = Crew::of_embedded().map_err(no_threads)?;
        let database = open_database(&config, Arc::new(RealDisk), None).await?;
        let server = serving(database, crew, access, &config, None);
        Ok(Embedded { server, grace: config.shutdown_grace })
    }

    /// The client's end of a new connection, for the runtime that this is called from. The user is
    /// whoever the client says.
    ///
    /// # Errors
    /// The system has no pipe left.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (client, incoming) = UnixStream::pair()?;
        let (open, shared) = (self.server.registry.open(), Arc::clone(&self.server));
        self.server.crew.serve(Incoming::Pipe(incoming), move |pipe| handshake::serve(shared, pipe, open));
        Ok(client)
    }

    /// Stops: a grace time for what runs, then cancel, checkpoint, close.
    ///
    /// # Errors
    /// The checkpoint cannot be written; what was committed stays in the log.
    pub async fn close(self) -> Result<(), StartError> {
        end_sessions(&self.server, self.grace).await;
        close_database(&self.server).await
    }
}
