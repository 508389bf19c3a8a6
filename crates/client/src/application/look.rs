//! What is done without a run: looking at a family at all sites, acknowledging it, and finishing
//! what an execution left prepared everywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{ApplicationServer, Patience};
use crate::etransaction::{SiteReply, Text};
use crate::pool::{Pool, at_site};
use crate::site::{Connection, Look, Site, Trouble};
use crate::xid::{BadKey, check_xid};

/// What came of an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledged {
    /// All sites have forgotten the request; that it was executed they know for ever.
    Forgotten,
    /// No site has heard of the request.
    Unknown,
    /// Not every site has decided it: there is no answer yet that could be acknowledged.
    NotDecided,
    /// Some site did not reply, in words: acknowledge again, some time or never.
    Retry(Text),
}

/// The smallest instance that one execution has prepared at every site, or that some site has
/// committed.
fn winner(looks: &[Look]) -> Option<i64> {
    if let Some(winner) = looks.iter().find_map(|look| match look {
        Look::Committed(winner) => Some(*winner),
        _ => None,
    }) {
        return Some(winner);
    }
    let tables: Option<Vec<&BTreeMap<i64, String>>> = looks
        .iter()
        .map(|look| match look {
            Look::Undecided(prepared) => Some(prepared),
            _ => None,
        })
        .collect();
    let tables = tables?;
    let everywhere =
        |(instance, token): &(&i64, &String)| tables.iter().all(|t| t.get(instance) == Some(token));
    tables.first()?.iter().find(everywhere).map(|(instance, _)| *instance)
}

#[derive(Debug, Clone, Copy)]
enum Question {
    Look,
    Forget,
    Commit(i64),
    Describe,
}

#[derive(Debug)]
enum Answer {
    Look(Look),
    Done,
    Description(String),
}

async fn put<C: Connection>(connection: &C, question: Question, xid: &str) -> Result<Answer, Trouble> {
    match question {
        Question::Look => connection.look(xid).await.map(Answer::Look),
        Question::Forget => connection.forget(xid).await.map(|()| Answer::Done),
        Question::Commit(winner) => match connection.commit(xid, winner).await {
            SiteReply::Committed => Ok(Answer::Done),
            other => Err(Trouble(format!("instance {winner} is not committed: {other:?}").into())),
        },
        Question::Describe => Ok(Answer::Description(connection.describe())),
    }
}

/// One question to one site; once more over a new connection if an idle one has trouble.
async fn ask<S: Site>(
    pool: Arc<Pool<S>>,
    question: Question,
    xid: Text,
    patience: Patience,
) -> Result<Answer, Trouble> {
    let late = || Trouble("no reply in time".into());
    let mut lease = timeout(patience.connect, pool.take()).await.map_err(|_| late())??;
    loop {
        let asked = put(lease.connection(), question, &xid);
        match timeout(patience.commit, asked).await.unwrap_or_else(|_| Err(late())) {
            Ok(answer) => {
                lease.give_back();
                return Ok(answer);
            }
            Err(trouble) if !lease.is_reused() => return Err(trouble),
            Err(_) => {
                drop(lease);
                lease = timeout(patience.connect, pool.take_fresh()).await.map_err(|_| late())??;
            }
        }
    }
}

impl<S: Site> ApplicationServer<S> {
    /// Asks all sites, in parallel. The answers are in the order of the sites.
    async fn ask(&self, question: Question, xid: &str) -> Vec<Result<Answer, Trouble>> {
        let mut tasks = JoinSet::new();
        for (site, pool) in self.pools.iter().enumerate() {
            let asking = ask(Arc::clone(pool), question, xid.into(), self.options.patience);
            tasks.spawn(async move { (site, asking.await) });
        }
        let mut answers: Vec<_> =
            self.pools.iter().map(|_| Err(Trouble("the question failed".into()))).collect();
        while let Some(joined) = tasks.join_next().await {
            if let Ok((site, answer)) = joined {
                answers[site] = answer.map_err(|trouble| Trouble(at_site(site, &trouble)));
            }
        }
        answers
    }

    async fn look(&self, xid: &str) -> Result<Vec<Look>, Trouble> {
        let answers = self.ask(Question::Look, xid).await;
        let looks = answers.into_iter().filter_map(|answer| match answer {
            Ok(Answer::Look(look)) => Some(Ok(look)),
            Ok(_) => None,
            Err(trouble) => Some(Err(trouble)),
        });
        looks.collect()
    }

    /// Lets all sites forget a request whose answer its client has. Asks all of them first: what
    /// one site forgets must be decided at every site.
    ///
    /// # Errors
    /// The XID is none.
    pub async fn acknowledge(&self, xid: &str) -> Result<Acknowledged, BadKey> {
        check_xid(xid)?;
        let looks = match self.look(xid).await {
            Ok(looks) => looks,
            Err(trouble) => return Ok(Acknowledged::Retry(trouble.0)),
        };
        if looks.iter().all(|look| *look == Look::Unknown) {
            return Ok(Acknowledged::Unknown);
        }
        if !looks.iter().all(|look| matches!(look, Look::Committed(_) | Look::Forgotten)) {
            return Ok(Acknowledged::NotDecided);
        }
        for answer in self.ask(Question::Forget, xid).await {
            if let Err(trouble) = answer {
                return Ok(Acknowledged::Retry(trouble.0));
            }
        }
        Ok(Acknowledged::Forgotten)
    }

    /// Commits what one execution has prepared at every site, or what some site has committed:
    /// nothing else can be decided any more, whoever looks. False if there is no such instance, or
    /// not all sites have acknowledged it.
    ///
    /// A run does the same with the tables of its PREPARE, after BEGIN; where BEGIN is refused
    /// because something is in doubt, this is what is left.
    pub(super) async fn settle(&self, xid: &str) -> bool {
        let Ok(looks) = self.look(xid).await else { return false };
        let Some(winner) = winner(&looks) else { return false };
        self.ask(Question::Commit(winner), xid).await.iter().all(Result::is_ok)
    }

    /// What each site is, or why it cannot be reached.
    pub async fn describe(&self) -> Vec<Result<String, Trouble>> {
        let answers = self.ask(Question::Describe, "").await;
        let described = answers.into_iter().map(|answer| match answer? {
            Answer::Description(text) => Ok(text),
            other => Err(Trouble(format!("{other:?}").into())),
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undecided(prepared: &[(i64, &str)]) -> Look {
        Look::Undecided(prepared.iter().map(|(instance, token)| (*instance, (*token).to_owned())).collect())
    }

    #[test]
    fn only_what_one_execution_prepared_at_every_site_is_a_winner() {
        assert_eq!(winner(&[undecided(&[(1, "a"), (2, "b")]), undecided(&[(2, "b")])]), Some(2));
        assert_eq!(winner(&[undecided(&[(2, "a")]), undecided(&[(2, "b")])]), None);
        assert_eq!(winner(&[undecided(&[(2, "a")]), Look::Unknown]), None);
        assert_eq!(winner(&[undecided(&[(2, "a")]), Look::Committed(2)]), Some(2));
        assert_eq!(winner(&[Look::Forgotten, undecided(&[])]), None);
    }
}
