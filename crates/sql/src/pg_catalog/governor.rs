//! Cognate's own view of the governor: `cognate_governor`, one row.

use cognate_engine::GovernorInfo;

use super::{Source, SystemTable};

pub(super) const TABLES: &[&SystemTable] = &[&COGNATE_GOVERNOR];

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn info(source: &Source<'_>) -> Option<GovernorInfo> {
    source.server.governor()
}

system_table! {
    static COGNATE_GOVERNOR = 15001 view "pg_catalog"."cognate_governor",
    |source| info(source) => |info|,
    mode: Text = info.mode.to_string(),
    active_limit: Int8 = info.limit.map(i64::from),
    active: Int8 = i64::from(info.active),
    waiting: Int8 = i64::from(info.waiting),
    admitted: Int8 = count(info.admitted),
    queued: Int8 = count(info.queued),
    given_back: Int8 = count(info.given_back),
    conflicts: Int8 = count(info.conflicts),
    steps: Int8 = count(info.steps),
    cuts: Int8 = count(info.cuts),
}
