//! Components and other services of this process, with threads of their own: clients have others.
//!
//! Everything that a host has begun ends with it. An embedded database is closed by
//! [`Components::stop`].

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use axum::Router;
use cognate_composite::{Component, Running};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::http::Connection;
use super::place::Place;
use crate::error::{Error, IoContext, Result};

/// How long roots may take to end once no more begin.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Threads for services.
pub struct Host {
    runtime: Option<Runtime>,
}

impl Host {
    /// So many threads.
    ///
    /// # Errors
    /// The system has none left.
    pub fn new(threads: usize) -> Result<Host> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).thread_name("services").enable_all().build();
        Ok(Host { runtime: Some(runtime.doing("starting the threads of services")?) })
    }

    /// Begins something there.
    fn spawn<T, W>(&self, work: W) -> Result<JoinHandle<T>>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let ended = || Error::Server("the services have ended".to_owned());
        Ok(self.runtime.as_ref().ok_or_else(ended)?.spawn(work))
    }

    /// Runs something there to its end.
    ///
    /// # Errors
    /// It panics.
    pub async fn run<T, W>(&self, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        self.spawn(work)?.await.map_err(|panic| Error::Server(format!("a service failed: {panic}")))
    }

    /// A free place to listen.
    async fn listen(&self) -> Result<(TcpListener, SocketAddr)> {
        let bound = self.run(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).await?;
        let listener = bound.doing("looking for a free port")?;
        let address = listener.local_addr().doing("looking for a free port")?;
        Ok((listener, address))
    }

    fn serve_on(&self, listener: TcpListener, router: Router) -> Result<JoinHandle<()>> {
        self.spawn(async move { drop(axum::serve(listener, router).await) })
    }

    /// Serves until the host ends.
    ///
    /// # Errors
    /// There is no port left.
    pub async fn serve(&self, router: Router) -> Result<SocketAddr> {
        let (listener, address) = self.listen().await?;
        self.serve_on(listener, router)?;
        Ok(address)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Part {
    name: String,
    address: SocketAddr,
    running: Running,
    serving: JoinHandle<()>,
}

/// Components that know each other.
pub struct Components {
    parts: Vec<Part>,
    host: Host,
}

impl Components {
    /// Starts them, each with a database of its own whose name begins with `prefix`.
    ///
    /// # Errors
    /// What keeps one of them from starting.
    pub async fn start(
        place: &mut Place,
        prefix: &str,
        threads: usize,
        components: Vec<(&str, Component)>,
    ) -> Result<Components> {
        let host = Host::new(threads)?;
        place.next_start();
        let mut listeners = Vec::new();
        for (name, _) in &components {
            listeners.push((*name, host.listen().await?));
        }
        let mut starting = Vec::new();
        for (name, component) in components {
            let (url, journal) = place.database(&format!("{prefix}{name}")).await?;
            let mut component = component.database(&url).data(journal);
            for (peer, (_, address)) in listeners.iter().filter(|(peer, _)| *peer != name) {
                component = component.peer(peer, &format!("http://{address}"));
            }
            starting.push(host.run(component.start()));
        }
        let mut parts = Vec::new();
        for ((name, (listener, address)), started) in listeners.into_iter().zip(try_join_all(starting).await?)
        {
            let running = started.map_err(|error| Error::Server(error.to_string()))?;
            let serving = host.serve_on(listener, running.router())?;
            parts.push(Part { name: name.to_owned(), address, running, serving });
        }
        Ok(Components { parts, host })
    }

    /// Where the first one listens.
    pub fn address(&self) -> SocketAddr {
        self.parts[0].address
    }

    /// How many roots were begun at all of them; each attempt is one.
    pub fn roots_begun(&self) -> u64 {
        self.parts.iter().map(|part| part.running.roots_begun()).sum()
    }

    /// How often the journals were flushed.
    pub fn journal_flushes(&self) -> u64 {
        self.parts.iter().map(|part| part.running.journal_flushes()).sum()
    }

    /// Waits until no root is open anywhere.
    ///
    /// # Errors
    /// One stays open, is in doubt, or cannot be undone.
    pub async fn settle(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        for Part { name, address, .. } in &self.parts {
            let mut connection = Connection::open(*address).await.doing(format!("connecting to {name}"))?;
            loop {
                let (_, text) =
                    connection.request("GET", "/status", "").await.doing(format!("asking {name}"))?;
                let status: Value = serde_json::from_str(&text).unwrap_or_default();
                let is_settled = status["roots"] == json!([])
                    && status["in_doubt"] == json!(0)
                    && status["undo_backlog"] == json!(0)
                    && status["parked"] == json!([]);
                if is_settled {
                    break;
                }
                if Instant::now() >= until {
                    return Err(Error::Violation(format!("{name}: ROOTS DO NOT END: {text}")));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// What each of them answers to the same request.
    ///
    /// # Errors
    /// One answers with a problem.
    pub async fn ask_each(&self, path: &str, body: &str) -> Result<Vec<(String, Value)>> {
        let mut answers = Vec::new();
        for Part { name, address, .. } in &self.parts {
            let mut connection = Connection::open(*address).await.doing(format!("connecting to {name}"))?;
            let answer = connection.request("POST", path, body).await.doing(format!("asking {name}"))?;
            match answer {
                (200, text) => answers.push((name.clone(), serde_json::from_str(&text).unwrap_or_default())),
                (status, text) => return Err(Error::Violation(format!("{name}: {status} {text}"))),
            }
        }
        Ok(answers)
    }

    /// Ends them and closes their databases.
    ///
    /// # Errors
    /// A task of theirs panics.
    pub async fn stop(self) -> Result<()> {
        for part in self.parts {
            part.serving.abort();
            self.host.run(part.running.stop()).await?;
        }
        Ok(())
    }
}
