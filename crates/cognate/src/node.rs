//! `cognate node`: who belongs to a cluster. Everything but `init` asks a running node, over its
//! HTTP port, and any of them will do.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use cognate_engine::{Database, Options};
use serde_json::Value;

/// How long a node may take to answer a question.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it may take for a change.
const CHANGE: Duration = Duration::from_secs(90);
/// Why a node may not vote for the moment, or nobody knows whether it does: it has fallen behind
/// again, or has just gone; the leader has; or another node is added at the same time.
const PASSING: [&str; 6] = [
    "cannot vote yet",
    "does not answer",
    "no leader of a majority",
    "connection ended",
    "no answer in time",
    "undergoing a configuration change",
];
/// How long others may say that a node has lost its data of one that was just added, as after its
/// removal, until they have all tried again; and of one that was added before.
const REFUSED: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3));
/// How often it is looked how far a new node is.
const PERIOD: Duration = Duration::from_millis(500);

/// Arguments of `cognate node`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Node {
    /// Show the nodes, as one of them sees them.
    Status {
        #[command(flatten)]
        at: At,
    },
    /// Let a node take part that has an empty folder and runs with the cluster's --peers.
    Add {
        /// Its number.
        number: u16,
        #[command(flatten)]
        at: At,
    },
    /// Let a node not take part any more; its process is stopped separately.
    Remove {
        /// Its number.
        number: u16,
        #[command(flatten)]
        at: At,
    },
    /// Bring a node back whose data are lost or damaged: stop it, remove its folder, start it again
    /// with the same command, and then say this.
    Rebuild {
        /// Its number.
        number: u16,
        #[command(flatten)]
        at: At,
    },
    /// Make the data of a database of its own, which is stopped, those of a cluster's first node.
    Init {
        /// Folder of the database.
        #[arg(long, value_name = "DIR", env = "COGNATE_DATA", default_value = "cognate-data")]
        data: PathBuf,
    },
}

/// Which node is asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct At {
    /// HTTP address of any node.
    #[arg(long, value_name = "HOST:PORT", env = "COGNATE_HTTP", default_value = "127.0.0.1:8433")]
    http: String,
    /// File whose first line is the token that the node wants; COGNATE_HTTP_TOKEN is the token
    /// itself.
    #[arg(long, value_name = "FILE", env = "COGNATE_HTTP_TOKEN_FILE")]
    http_token_file: Option<PathBuf>,
}

impl Node {
    /// Does it.
    pub(crate) fn run(&self) -> Result<(), String> {
        match self {
            Node::Status { at } => show(&at.ask("GET", "/cluster")?),
            Node::Add { number, at } => add(*number, at),
            Node::Remove { number, at } => {
                at.change(*number, "remove")?;
                say(&format!("node {number} is no member any more"));
                Ok(())
            }
            Node::Rebuild { number, at } => {
                let nodes = at.ask("GET", "/cluster")?;
                let row = row_of(&nodes, *number).ok_or(format!("there is no node {number}"))?;
                if row["state"] == "serving" {
                    return Err(format!("node {number} is well: nothing is rebuilt"));
                }
                // One that was removed before, and did not come that time, is added.
                match at.change(*number, "remove") {
                    Err(why) if !why.contains("no member") => return Err(why),
                    _ => {}
                }
                say(&format!("node {number} is removed, to come back as a new one"));
                add(*number, at)
            }
            Node::Init { data } => init(data),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    // Whoever asked may have closed the output; that is no reason to stop.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Whether a node is refused for good because its data are lost.
struct Lost {
    since: Option<Instant>,
    patience: Duration,
}

impl Lost {
    /// The same as of now, when others refuse it or do not: they have, for as long as it may be.
    fn is_said(&mut self, is_refused: bool, now: Instant) -> bool {
        if !is_refused {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) >= self.patience
    }
}

/// Lets a node receive everything, waits until it has, and lets it vote.
fn add(number: u16, at: &At) -> Result<(), String> {
    let mut lost = Lost { since: None, patience: REFUSED.0 };
    if let Err(why) = at.change(number, "add") {
        // One that was added before and does not vote: that was begun, and not brought to its end.
        let nodes = at.ask("GET", "/cluster")?;
        let is_learner = row_of(&nodes, number).is_some_and(|row| row["role"] == "learner");
        if !is_learner || !why.contains("a member already") {
            return Err(why);
        }
        lost.patience = REFUSED.1;
    }
    say(&format!("node {number} receives what the others have"));
    let (mut goal, mut said) = (None, String::new());
    loop {
        let nodes = at.ask("GET", "/cluster")?;
        let settled = nodes["nodes"].as_array().into_iter().flatten();
        let settled = settled.filter_map(|row| row["committed"].as_u64()).max().unwrap_or(0);
        // What the others have now; who has that is close enough to vote.
        let goal = *goal.get_or_insert(settled);
        let row = row_of(&nodes, number).cloned().unwrap_or_default();
        if lost.is_said(row["has_lost_data"] == true, Instant::now()) {
            return Err(format!(
                "node {number} has lost its data since it was added, and with them what it confirmed: say \
                 cognate node rebuild {number}"
            ));
        }
        let applied = row["applied"].as_u64();
        let has_come = applied.is_some_and(|applied| applied >= goal);
        if has_come && (row["role"] == "follower" || row["role"] == "leader") {
            // The answer to that was lost.
            break;
        }
        let mut refused = None;
        if has_come && row["role"] == "learner" {
            match at.change(number, "promote") {
                Ok(()) => break,
                Err(why) if PASSING.iter().any(|what| why.contains(what)) => refused = Some(why),
                Err(why) => return Err(why),
            }
        }
        let progress = match (refused, applied, row["reason"].as_str()) {
            (Some(why), ..) => format!("waiting: {why}"),
            (_, Some(applied), _) if applied > 0 => format!("node {number} is at {applied} of {goal}"),
            (_, _, Some(reason)) if !reason.is_empty() => format!("waiting for node {number}: {reason}"),
            _ => format!("waiting for node {number}"),
        };
        if progress != said {
            say(&progress);
            said = progress;
        }
        std::thread::sleep(PERIOD);
    }
    say(&format!("node {number} takes part"));
    Ok(())
}

fn row_of(nodes: &Value, number: u16) -> Option<&Value> {
    nodes["nodes"].as_array()?.iter().find(|row| row["node"] == number)
}

fn show(nodes: &Value) -> Result<(), String> {
    let columns =
        ["node", "address", "role", "state", "applied", "committed", "lag_bytes", "lag_ms", "reason"];
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = nodes["nodes"].as_array().ok_or("the node's answer makes no sense")?;
    let mut table = vec![columns.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| columns.iter().map(|column| cell(&row[column])).collect()));
    let width = |at: usize| table.iter().map(|row: &Vec<String>| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in &table {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        say(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    Ok(())
}

fn init(data: &std::path::Path) -> Result<(), String> {
    crate::refuse_others(data)?;
    let position = Database::found_cluster(Options::new(data)).map_err(|e| e.to_string())?;
    say(&format!(
        "{} is a node's from now on: its cluster begins behind position {position}. Start it with --node N and \
         --peers N=HOST:PORT, alone at first; then start it with the list of all nodes, and the others with \
         empty folders, and add them (`cognate node add`)",
        data.display()
    ));
    Ok(())
}

impl At {
    fn change(&self, number: u16, change: &str) -> Result<(), String> {
        self.ask("POST", &format!("/cluster/nodes/{number}/{change}")).map(drop)
    }

    fn token(&self) -> Result<Option<String>, String> {
        let Some(file) = &self.http_token_file else { return Ok(std::env::var("COGNATE_HTTP_TOKEN").ok()) };
        let text = std::fs::read_to_string(file)
            .map_err(|e| format!("http-token-file: cannot read {}: {e}", file.display()))?;
        Ok(text.lines().next().map(|line| line.trim().to_owned()))
    }

    /// One request and its answer.
    fn ask(&self, method: &str, path: &str) -> Result<Value, String> {
        // As browsers show it, too.
        let host = self.http.trim_start_matches("http://").trim_end_matches('/');
        let patience = if method == "GET" { ANSWER } else { CHANGE };
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("no answer from http://{host} within {} s", patience.as_secs())
            }
            _ => format!("no answer from http://{host}: {e}"),
        };
        let token = self.token()?;
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(host).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n{authorization}\r\n"
        );
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        let unclear = || format!("http://{host} answers as no node does");
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(unclear)?;
        let status: u16 =
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(unclear)?;
        let body: Value =
            serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.trim().to_owned()));
        match (status, &body) {
            (200, Value::Object(_)) => Ok(body),
            (200, _) => Err(unclear()),
            (401, _) => Err(format!("http://{host} wants a token: set --http-token-file")),
            _ => Err(body["error"].as_str().or(body.as_str()).map_or_else(unclear, str::to_owned)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would be waited for without end, and nothing of it ever comes.
    #[test]
    fn who_has_lost_its_data_is_refused_unless_it_was_just_added() {
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        let mut before = Lost { since: None, patience: REFUSED.1 };
        assert!(!before.is_said(false, began) && !before.is_said(true, after(500)));
        assert!(!before.is_said(true, after(3400)) && before.is_said(true, after(3500)));
        let mut fresh = Lost { since: None, patience: REFUSED.0 };
        assert!(!fresh.is_said(true, began) && !fresh.is_said(true, after(4000)));
        // Those who refused it have tried again.
        assert!(!fresh.is_said(false, after(5000)) && !fresh.is_said(true, after(31_000)));
        assert!(fresh.is_said(true, after(61_000)));
    }
}
