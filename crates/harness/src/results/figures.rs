//! All records that were read, and what can be asked of them: a figure by its name, a ratio of two
//! systems.

use serde_json::Value;

use crate::median::{median_ratio, ratio_error};
use crate::report::Record;

/// The records of one JSON file.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its name without folder and ending.
    pub name: String,
    /// What stands in it.
    pub records: Vec<Record>,
}

/// A figure, and how far it can be trusted.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The figure.
    pub value: f64,
    /// Its standard error over the rounds, in its own unit, if there were several.
    pub error: Option<f64>,
    /// The isolation level that it was measured at, if it has one.
    pub isolation: String,
    /// The page on which it stands.
    pub page: String,
}

/// A row in which PostgreSQL did more a second, or had a shorter 99th percentile of latency.
#[derive(Clone, Copy, Debug)]
pub struct Better<'a> {
    /// The page on which both stand.
    pub page: &'a str,
    /// What Cognate did.
    pub ours: &'a Record,
    /// What PostgreSQL did.
    pub theirs: &'a Record,
}

/// All pages.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// In the order of their names.
    pub pages: Vec<Page>,
}

/// What a record is called in its table: the one parameter that tells the rows apart.
pub fn row_name(record: &Record) -> String {
    let names = ["point reads", "case", "interaction", "script", "step"];
    names.iter().map(|name| record.param(name)).find(|value| !value.is_empty()).unwrap_or("").to_owned()
}

/// The rates of a record's rounds, if it says them.
fn rounds(record: &Record) -> Option<Vec<f64>> {
    let names = ["per_s_of_rounds", "tps_of_rounds"];
    let list = names.iter().find_map(|name| record.params.get(*name)?.as_array())?;
    list.iter().map(Value::as_f64).collect()
}

impl Figures {
    fn records(&self) -> impl Iterator<Item = (&Page, &Record)> {
        self.pages.iter().flat_map(|page| page.records.iter().map(move |record| (page, record)))
    }

    /// The parameter `name` of the first record of `workload` that has it; its standard error is
    /// `name_error`.
    pub fn param(&self, workload: &str, name: &str) -> Option<Measured> {
        self.records().filter(|(_, record)| record.workload == workload).find_map(|(page, record)| {
            let value = record.params.get(name)?.as_f64()?;
            let error = record.params.get(&format!("{name}_error")).and_then(Value::as_f64);
            Some(of(page, record, value, error))
        })
    }

    /// The smallest value of a parameter over all records of a workload.
    pub fn lowest(&self, workload: &str, name: &str) -> Option<Measured> {
        let found = self.records().filter(|(_, record)| record.workload == workload);
        let with = found.filter_map(|(page, record)| {
            let error = record.params.get(&format!("{name}_error")).and_then(Value::as_f64);
            Some(of(page, record, record.params.get(name)?.as_f64()?, error))
        });
        with.reduce(|lowest, next| if next.value < lowest.value { next } else { lowest })
    }

    /// Committed requests a second, Cognate over PostgreSQL, of a row: the median of the rounds'
    /// ratios if both say their rounds.
    pub fn of_postgres(&self, workload: &str, row: &str) -> Option<Measured> {
        let (page, ours) = self.record(workload, "cognate", row)?;
        let (_, theirs) = self.record(workload, "postgres", row)?;
        match (rounds(ours), rounds(theirs)) {
            (Some(above), Some(below)) if above.len() == below.len() && above.len() > 1 => {
                let error = Some(ratio_error(&above, &below)).filter(|error| error.is_finite());
                Some(of(page, ours, median_ratio(&above, &below), error))
            }
            _ => {
                let below = Some(theirs.committed_per_s).filter(|rate| *rate > 0.0)?;
                Some(of(page, ours, ours.committed_per_s / below, None))
            }
        }
    }

    /// The 99th percentile of a row's latency, Cognate over PostgreSQL.
    pub fn p99_of_postgres(&self, workload: &str, row: &str) -> Option<Measured> {
        let (page, ours) = self.record(workload, "cognate", row)?;
        let (_, theirs) = self.record(workload, "postgres", row)?;
        let below = Some(theirs.latency_ms.p99).filter(|p99| *p99 > 0.0)?;
        Some(of(page, ours, ours.latency_ms.p99 / below, None))
    }

    /// The mean latency of a row in microseconds.
    pub fn mean_us(&self, workload: &str, row: &str) -> Option<Measured> {
        let (page, record) = self.record(workload, "cognate", row)?;
        Some(of(page, record, 1000.0 * record.latency_ms.mean, None))
    }

    fn record(&self, workload: &str, system: &str, row: &str) -> Option<(&Page, &Record)> {
        self.records().find(|(_, r)| r.workload == workload && r.system == system && row_name(r) == row)
    }

    /// The rows in which PostgreSQL was better, in the order of the pages. A row is compared with
    /// the one of the same name, and of the same isolation level if there is such a one.
    pub fn better_of_postgres(&self) -> Vec<Better<'_>> {
        let mut found = Vec::new();
        for (page, theirs) in self.records().filter(|(_, record)| record.system == "postgres") {
            let is_same = |ours: &&Record| {
                let both = ours.workload == theirs.workload && row_name(ours) == row_name(theirs);
                both && ours.system == "cognate"
            };
            let same: Vec<&Record> = page.records.iter().filter(is_same).collect();
            let level = theirs.param("isolation");
            let at_level = same.iter().find(|ours| ours.param("isolation") == level);
            let Some(ours) = at_level.or_else(|| same.first()).copied() else { continue };
            let row = Better { page: &page.name, ours, theirs };
            if row.is_slower() || row.waits_longer() {
                found.push(row);
            }
        }
        found
    }
}

impl Better<'_> {
    /// What the row is called; a page of one row may have no name for it.
    pub fn row(&self) -> String {
        let name = row_name(self.theirs);
        if name.is_empty() { self.page.to_owned() } else { name }
    }

    /// Committed requests a second, Cognate over PostgreSQL.
    pub fn rate(&self) -> Option<f64> {
        let theirs = self.theirs.committed_per_s;
        (theirs > 0.0).then(|| self.ours.committed_per_s / theirs)
    }

    /// The 99th percentile of latency, Cognate over PostgreSQL.
    pub fn p99(&self) -> Option<f64> {
        let theirs = self.theirs.latency_ms.p99;
        (theirs > 0.0).then(|| self.ours.latency_ms.p99 / theirs)
    }

    /// Whether PostgreSQL did more a second.
    pub fn is_slower(&self) -> bool {
        self.rate().is_some_and(|ratio| ratio < 1.0)
    }

    /// Whether PostgreSQL had a shorter 99th percentile.
    pub fn waits_longer(&self) -> bool {
        self.p99().is_some_and(|ratio| ratio > 1.0)
    }
}

fn of(page: &Page, record: &Record, value: f64, error: Option<f64>) -> Measured {
    Measured { value, error, isolation: record.param("isolation").to_owned(), page: page.name.clone() }
}
