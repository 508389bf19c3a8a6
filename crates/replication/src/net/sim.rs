//! A network in memory, with seeded delays, losses, repetitions and cuts.
//!
//! On a runtime of one thread with a paused clock, hours pass in seconds, and for one seed all that
//! this network does is drawn from it. A lost request or answer is noticed by the caller's
//! time-out alone. Repeated are only requests of which a second copy must do no harm; others travel
//! at most once, as over TCP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cognate_env::SplitMix;
use parking_lot::Mutex;

use super::{CallError, Identity, Network, Serve, Wire};
use crate::application::Answer;
use crate::entry::NodeNumber;
use crate::error::StartError;
use crate::messages::Kind;

/// How bad a network is.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Shortest and longest time that a message takes, in microseconds.
    pub delay_us: (u64, u64),
    /// Of a thousand messages, how many are lost.
    pub losses: u64,
    /// Of a thousand requests, how many come twice.
    pub repetitions: u64,
}

impl Weather {
    /// Nothing is lost.
    pub fn fair() -> Weather {
        Weather { delay_us: (50, 500), losses: 0, repetitions: 0 }
    }
}

struct Sea {
    random: SplitMix,
    weather: Weather,
    servers: BTreeMap<NodeNumber, (u64, Arc<dyn Serve>)>,
    /// From where to where nothing comes through.
    cuts: BTreeSet<(NodeNumber, NodeNumber)>,
    next_life: u64,
}

/// See the module's description. Clones are the same network.
#[derive(Clone)]
pub struct SimNetwork(Arc<Mutex<Sea>>);

impl std::fmt::Debug for SimNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimNetwork").finish_non_exhaustive()
    }
}

/// One direction of a message.
enum Fate {
    After(Duration),
    Lost,
}

impl SimNetwork {
    /// A network without nodes.
    pub fn new(seed: u64) -> SimNetwork {
        SimNetwork(Arc::new(Mutex::new(Sea {
            random: SplitMix::new(seed),
            weather: Weather::fair(),
            servers: BTreeMap::new(),
            cuts: BTreeSet::new(),
            next_life: 0,
        })))
    }

    /// Changes the weather.
    pub fn set_weather(&self, weather: Weather) {
        self.0.lock().weather = weather;
    }

    /// Nothing comes from `from` to `to` any more.
    pub fn cut(&self, from: NodeNumber, to: NodeNumber) {
        self.0.lock().cuts.insert((from, to));
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        self.0.lock().cuts.clear();
    }

    /// Takes a node from the network, as its end would.
    pub fn remove(&self, node: NodeNumber) {
        self.0.lock().servers.remove(&node);
    }

    fn fate(&self, from: NodeNumber, to: NodeNumber) -> Fate {
        let mut sea = self.0.lock();
        let Weather { delay_us: (least, most), losses, .. } = sea.weather;
        if sea.cuts.contains(&(from, to)) || sea.random.below(1000) < losses {
            return Fate::Lost;
        }
        let delay = least + sea.random.below(most.saturating_sub(least) + 1);
        Fate::After(Duration::from_micros(delay))
    }

    async fn travel(&self, from: NodeNumber, to: NodeNumber) {
        match self.fate(from, to) {
            Fate::After(delay) => tokio::time::sleep(delay).await,
            Fate::Lost => std::future::pending().await,
        }
    }

    fn server(&self, node: NodeNumber) -> Option<Arc<dyn Serve>> {
        self.0.lock().servers.get(&node).map(|(_, server)| Arc::clone(server))
    }

    fn is_repeated(&self, request: &Bytes) -> bool {
        let mut sea = self.0.lock();
        let repetitions = sea.weather.repetitions;
        sea.random.below(1000) < repetitions && Kind::of(request).is_some_and(Kind::is_repeatable)
    }

    async fn call(self, from: NodeNumber, to: NodeNumber, request: Bytes) -> Result<Bytes, CallError> {
        if self.is_repeated(&request) {
            let (network, request) = (self.clone(), request.clone());
            tokio::spawn(async move {
                network.travel(from, to).await;
                if let Some(server) = network.server(to) {
                    server.serve(from, request).await;
                }
            });
        }
        self.travel(from, to).await;
        let Some(server) = self.server(to) else {
            return Err(CallError::NotSent(format!("node {to} is not there")));
        };
        // As a connection's other side, it goes on although the caller may have gone.
        let answer = tokio::spawn(server.serve(from, request)).await;
        let answer = answer.map_err(|_| CallError::Lost("the other side panicked".to_owned()))?;
        self.travel(to, from).await;
        Ok(answer)
    }
}

struct SimWire {
    network: SimNetwork,
    node: NodeNumber,
    life: u64,
}

impl Network for SimNetwork {
    fn open(
        self: Box<Self>,
        identity: Arc<Identity>,
        server: Arc<dyn Serve>,
    ) -> Answer<'static, Result<Arc<dyn Wire>, StartError>> {
        let node = identity.node();
        let life = {
            let mut sea = self.0.lock();
            sea.next_life += 1;
            let life = sea.next_life;
            sea.servers.insert(node, (life, server));
            life
        };
        Box::pin(async move { Ok(Arc::new(SimWire { network: *self, node, life }) as Arc<dyn Wire>) })
    }
}

impl Wire for SimWire {
    fn call(&self, to: NodeNumber, request: Bytes) -> Answer<'static, Result<Bytes, CallError>> {
        let is_here =
            self.network.0.lock().servers.get(&self.node).is_some_and(|(life, _)| *life == self.life);
        if !is_here {
            return Box::pin(async { Err(CallError::NotSent("this node has ended".to_owned())) });
        }
        Box::pin(self.network.clone().call(self.node, to, request))
    }

    fn problem(&self, node: NodeNumber) -> Option<String> {
        self.network.server(node).is_none().then(|| format!("node {node} is not there"))
    }

    fn close(&self) -> Answer<'static, ()> {
        let mut sea = self.network.0.lock();
        if sea.servers.get(&self.node).is_some_and(|(life, _)| *life == self.life) {
            sea.servers.remove(&self.node);
        }
        Box::pin(async {})
    }
}
