//! Members that go and come back in a storm: a node is removed, loses all that it had, and is added
//! again with an empty disk, while clients go on. If nobody knows whether it was removed, what it
//! has may count for a majority: then it keeps that, and is added again with it.
//!
//! A removal whose answer was lost may come later than everything that was asked for behind it. So
//! once all has healed, whoever leads says who is missing.

use std::collections::BTreeSet;
use std::time::Duration;

use cognate_replication::{Change, NodeNumber, TotalOrder};
use tokio::time::timeout;

use super::Storm;
use super::machine::Machine;
use super::node::{NODES, Running};

/// How long a change may take in a storm.
const IN_STORM: Duration = Duration::from_secs(2);
/// How long it may take once all has healed.
const HEALED: Duration = Duration::from_secs(30);
/// By then a change that was asked for in the storm has come, or never does.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked whether all are members.
const LOOKS: usize = 50;

impl Storm {
    /// The order as another node than this one has it, if one runs.
    fn beside(&self, number: u16) -> Option<TotalOrder> {
        let other = self.running.iter().find(|(other, _)| **other != number);
        other.map(|(_, running)| running.order.clone())
    }

    /// Removes a node, and takes its data from it. One at a time.
    pub(super) async fn renew(&mut self, number: u16) {
        if self.coming.is_some() || !self.running.contains_key(&number) {
            return;
        }
        let Some(order) = self.beside(number) else { return };
        self.coming = Some(number);
        let removal = order.change(Change::Remove(NodeNumber::from(number)));
        if !matches!(timeout(IN_STORM, removal).await, Ok(Ok(()))) {
            return;
        }
        self.crash(number).await;
        let machine = Machine::new(self.seed ^ (u64::from(self.starts) << 40));
        self.machines.insert(number, machine);
        self.start(number).await;
        self.renewed += 1;
    }

    /// Adds the node again that was removed, if one was and it runs.
    pub(super) async fn add_again(&mut self) {
        let Some(number) = self.coming.filter(|number| self.running.contains_key(number)) else { return };
        if self.add(number, IN_STORM).await.is_ok() {
            self.coming = None;
        }
    }

    /// Adds a node, with its vote. Says why that was not answered, if so.
    async fn add(&self, number: u16, patience: Duration) -> Result<(), String> {
        let Some(order) = self.beside(number) else { return Err("no other node runs".to_owned()) };
        let node = NodeNumber::from(number);
        let adding = async {
            order.change(Change::AddLearner(node)).await?;
            order.change(Change::Promote(node)).await
        };
        match timeout(patience, adding).await {
            Ok(added) => added.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Once all has healed and all run: waits until all vote.
    pub(super) async fn gather(&mut self) {
        let all: BTreeSet<NodeNumber> = (1..=NODES).map(NodeNumber::from).collect();
        let mut last = String::new();
        for _ in 0..LOOKS {
            tokio::time::sleep(PAUSE).await;
            self.start_replaced().await;
            let leads = |running: &&Running| running.order.leader() == Some(running.order.node());
            let Some(leader) = self.running.values().find(leads) else { continue };
            let voters = leader.order.members().voters;
            if voters.len() == 1 && voters[0] == all {
                return;
            }
            let votes = |number: &u16| voters.iter().all(|set| set.contains(&NodeNumber::from(*number)));
            if let Some(missing) = (1..=NODES).find(|number| !votes(number)) {
                let added = self.add(missing, HEALED).await;
                last = format!("{} leads, {voters:?} vote, to add {missing}: {added:?}", leader.order.node());
            }
        }
        panic!("seed {}: not all nodes are members again: {last}", self.seed);
    }
}
