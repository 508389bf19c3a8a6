//! Which process speaks as which node. Pure: connections, what is heard on them and the time go in.
//!
//! A node's folder may have been copied, and the copy started elsewhere: it has all that the node
//! knows of itself. If others took it for the node, two processes could vote as one. So each
//! process draws a number at its start, and a second process is refused as long as the first one is
//! heard. One that has ended gives way at once, since its connections end with it; one that is lost
//! without a word does after [`SILENCE`]. Whoever was replaced so is not heard any more.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::NodeNumber;

/// Nodes ask each other how they are several times a second; one that is not heard for so long has
/// stopped.
const SILENCE: Duration = Duration::from_secs(1);

/// The process that speaks as a node.
#[derive(Debug)]
struct Process {
    life: u64,
    connections: usize,
    heard: Duration,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Presence(BTreeMap<NodeNumber, Process>);

impl Presence {
    /// A process wants to speak as a node.
    pub(crate) fn enter(&mut self, node: NodeNumber, life: u64, now: Duration) -> Result<(), String> {
        let present = self.0.entry(node).or_insert(Process { life, connections: 0, heard: now });
        if present.life != life {
            if now.saturating_sub(present.heard) < SILENCE {
                return Err(format!("a second node of number {node}: another process is heard as that"));
            }
            *present = Process { life, connections: 0, heard: now };
        }
        present.connections += 1;
        present.heard = now;
        Ok(())
    }

    /// Something has come from it. Says whether it is still the one that speaks as the node.
    pub(crate) fn hear(&mut self, node: NodeNumber, life: u64, now: Duration) -> bool {
        match self.0.get_mut(&node).filter(|present| present.life == life) {
            Some(present) => {
                present.heard = now;
                true
            }
            None => false,
        }
    }

    /// One of its connections has ended.
    pub(crate) fn leave(&mut self, node: NodeNumber, life: u64) {
        if let Some(present) = self.0.get_mut(&node).filter(|present| present.life == life) {
            present.connections -= 1;
            if present.connections == 0 {
                self.0.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(12 * 3600);

    #[test]
    fn a_second_process_is_refused_while_the_first_is_heard() {
        let mut presence = Presence::default();
        presence.enter(3, 7, NOON).unwrap();
        presence.enter(3, 7, NOON).unwrap();
        presence.enter(2, 8, NOON).unwrap();
        assert!(presence.enter(3, 9, NOON).unwrap_err().contains("second node of number 3"));
        assert!(presence.hear(3, 7, NOON + SILENCE / 2));
        assert!(presence.enter(3, 9, NOON + SILENCE).is_err());
        // One of two connections has ended, and then the other.
        presence.leave(3, 7);
        assert!(presence.enter(3, 9, NOON + SILENCE).is_err());
        presence.leave(3, 7);
        presence.enter(3, 9, NOON + SILENCE).unwrap();
        assert!(!presence.hear(3, 7, NOON + SILENCE));
    }

    #[test]
    fn who_is_lost_without_a_word_is_replaced_and_not_heard_any_more() {
        let mut presence = Presence::default();
        presence.enter(3, 7, NOON).unwrap();
        let later = NOON + SILENCE;
        presence.enter(3, 9, later).unwrap();
        assert!(!presence.hear(3, 7, later));
        presence.leave(3, 7);
        assert!(presence.hear(3, 9, later), "that was the other's connection");
        assert!(presence.enter(3, 7, later).is_err());
    }
}
