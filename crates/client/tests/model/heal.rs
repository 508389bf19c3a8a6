//! What happens after the last fault: everything that was under way is lost, all runs are dead, and from now on nothing fails. A state *heals* if the
//! client then gets its answer by retrying, and if the stubs without the client decide whatever is prepared.
//!
//! This is a witness for "a state with the answer is reachable from here by steps without faults", in the worst case that anything useful was lost.

use cognate_client::etransaction::Reply;
use cognate_engine::sibling::Instance;

use crate::world::{Bounds, Step, Violation, World};

/// So many instances may be needed: one to learn of higher numbers, one to get through.
const ROUNDS: usize = 2;

/// Runs an execution to its reply.
fn finish(world: &mut World, owner: u64, bounds: &Bounds) -> Result<Option<Reply>, Violation> {
    while let Some(site) = world.unprocessed(owner) {
        let reply = {
            world.take_kept(Step::Process(owner, site), bounds)?;
            world.reply(owner).cloned()
        };
        if reply.is_some() {
            return Ok(reply);
        }
    }
    Ok(None)
}

/// T1: the client, if it still waits.
pub(crate) fn client(mut world: World, bounds: &Bounds) -> Result<(), Violation> {
    world.silence();
    for _ in 0..ROUNDS {
        if world.client.finished().is_some() {
            return Ok(());
        }
        let effect = world.client.timed_out(world.client.attempt(), 0);
        let owner = world.send(effect).ok_or("T1: the client does not retry")?;
        let attempt = world.client.attempt();
        if let Some(reply @ Reply::Done { .. }) = finish(&mut world, owner, bounds)? {
            world.client.replied(attempt, reply, 0);
        }
        world.silence();
    }
    match world.client.finished() {
        Some(Ok(_)) => Ok(()),
        other => Err(format!("T1: no answer after {ROUNDS} undisturbed attempts: {other:?}")),
    }
}

/// T2: each site's stub.
pub(crate) fn stubs(mut world: World, bounds: &Bounds) -> Result<(), Violation> {
    world.silence();
    for site in 0..world.sites.len() {
        let mut highest = 0;
        for _ in 0..=ROUNDS {
            let family = &world.sites[site].family;
            if family.prepared().next().is_none() {
                break;
            }
            highest = highest.max(family.highest());
            let number = Instance::above(highest, 1 + site as u16).expect("numbers are left").get();
            world.begin(number as u64 * 8, 0, 0, number);
            match finish(&mut world, number as u64 * 8, bounds)? {
                Some(Reply::Retry { highest: known, .. }) => highest = highest.max(known),
                Some(Reply::Done { .. }) => {}
                other => return Err(format!("T2: a stub's push ends in {other:?}")),
            }
            world.silence();
        }
        if world.sites[site].family.prepared().next().is_some() {
            return Err(format!("T2: site {site} stays prepared and undecided"));
        }
    }
    Ok(())
}
