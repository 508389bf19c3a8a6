//! What happens after the last fault: everything that was under way is lost, all runs are dead, and
//! from now on nothing fails. A state *heals* if the clients then get their answers by retrying,
//! and if the stubs without the clients decide or withdraw whatever is prepared.
//!
//! This is a witness for "a state with the answers is reachable from here by steps without faults",
//! in the worst case that anything useful was lost. Clients try one after the other, [`ROUNDS`]
//! times; of two requests each may be the first. That they try at once, over and over, is what
//! [`together`] is about.

use std::collections::HashSet;

use cognate_client_protocol::etransaction::Reply;

use crate::explorer::{Hashes, fingerprint};
use crate::world::{Bounds, Step, Violation, World};

/// So many instances may be needed: one to learn of higher numbers, or to clear what is in the way;
/// one to get through.
const ROUNDS: usize = 2;
/// Where it is to be shown that nothing comes of it.
const MANY_ROUNDS: usize = 20;

/// Runs an execution to its reply.
fn finish(world: &mut World, owner: u64, bounds: &Bounds) -> Result<Option<Reply>, Violation> {
    while let Some(step) = world.unprocessed(owner) {
        let reply = {
            world.take_kept(step, bounds)?;
            world.reply(owner).cloned()
        };
        if reply.is_some() {
            return Ok(reply);
        }
    }
    Ok(None)
}

/// T1: the clients, as far as they still wait.
pub(crate) fn clients(world: &World, bounds: &Bounds) -> Result<(), Violation> {
    let rounds = if bounds.withdraws { ROUNDS } else { MANY_ROUNDS };
    let requests: Vec<usize> = (0..world.clients.len()).collect();
    for first in &requests {
        let mut world = world.clone();
        world.silence();
        for _ in 0..rounds {
            for request in requests[*first..].iter().chain(&requests[..*first]) {
                attempt(&mut world, *request, bounds)?;
            }
        }
        for (request, client) in world.clients.iter().enumerate() {
            if !matches!(client.finished(), Some(Ok(_))) {
                let sites = world.summary();
                return Err(format!(
                    "T1: no answer to request {request} after {rounds} undisturbed attempts: {sites}"
                ));
            }
        }
    }
    Ok(())
}

/// One undisturbed attempt, if the client still waits.
fn attempt(world: &mut World, request: usize, bounds: &Bounds) -> Result<(), Violation> {
    let client = &mut world.clients[request];
    if client.finished().is_some() {
        return Ok(());
    }
    let effect = client.timed_out(client.attempt(), 0);
    let owner = world.send(request, effect).ok_or("T1: the client does not retry")?;
    let attempt = world.clients[request].attempt();
    if let Some(reply @ Reply::Done { .. }) = finish(world, owner, bounds)? {
        world.clients[request].replied(attempt, reply, 0);
    }
    world.silence();
    Ok(())
}

/// T2: each site's stub.
pub(crate) fn stubs(world: &World, bounds: &Bounds) -> Result<(), Violation> {
    let mut world = world.clone();
    world.silence();
    let places: Vec<(usize, usize)> = (0..world.sites.len())
        .flat_map(|site| (0..world.clients.len()).map(move |request| (site, request)))
        .collect();
    let mut highest = vec![0; places.len()];
    let is_in_doubt = |world: &World, (site, request): (usize, usize)| {
        world.sites[site].branches[request].family.prepared().next().is_some()
    };
    for _ in 0..=ROUNDS {
        for (place, known) in places.iter().zip(&mut highest) {
            let (site, request) = *place;
            if !is_in_doubt(&world, *place) {
                continue;
            }
            *known = world.sites[site].branches[request].family.highest().max(*known);
            let owner = world.push(site, request, 0, *known);
            match finish(&mut world, owner, bounds)? {
                Some(Reply::Retry { highest: heard, .. }) => *known = heard.max(*known),
                Some(Reply::Done { .. }) => {}
                other => return Err(format!("T2: a stub's push ends in {other:?}")),
            }
            world.silence();
        }
    }
    match places.iter().find(|place| is_in_doubt(&world, **place)) {
        Some((site, _)) => Err(format!("T2: site {site} stays prepared and undecided: {}", world.summary())),
        None => Ok(()),
    }
}

/// T3: one attempt of each client, undisturbed but by each other, in every interleaving: whoever
/// has no answer afterwards has nothing prepared anywhere. So requests that go on without an answer
/// are those whose attempts overlap each time anew; the clients' pauses, longer each time and by
/// chance, end that.
///
/// `seen` are states that were looked at before.
pub(crate) fn together(world: &World, bounds: &Bounds, seen: &mut Hashes) -> Result<(), Violation> {
    let mut world = world.clone();
    world.silence();
    for request in 0..world.clients.len() {
        let client = &mut world.clients[request];
        if client.finished().is_none() {
            let effect = client.timed_out(client.attempt(), 0);
            world.send(request, effect);
        }
    }
    let mut open = vec![world];
    while let Some(world) = open.pop() {
        if !seen.insert(fingerprint(&world)) {
            continue;
        }
        let steps: HashSet<Step> = world.undisturbed();
        if steps.is_empty() {
            rest(&world)?;
        }
        for step in steps {
            let mut after = world.clone();
            after.take_kept(step, bounds)?;
            open.push(after);
        }
    }
    Ok(())
}

/// All runs have ended.
fn rest(world: &World) -> Result<(), Violation> {
    for (request, client) in world.clients.iter().enumerate() {
        let is_answered = matches!(client.finished(), Some(Ok(_)))
            || world.runs.values().any(|run| run.has_answered(request));
        let is_in_doubt = |site: &crate::world::Site| {
            let family = &site.branches[request].family;
            family.outcome().is_none() && family.prepared().next().is_some()
        };
        if !is_answered && world.sites.iter().any(is_in_doubt) {
            return Err(format!(
                "T3: an undisturbed attempt leaves request {request} in doubt: {}",
                world.summary()
            ));
        }
    }
    Ok(())
}
