//! Planning of GROUP BY and its grouping sets.

use super::common::{share_sums, take_common};
use super::{AggregateNode, GroupNode};
use crate::bind::{AggregateCall, Group};

/// Plans the grouping of a level whose frame has so many places.
pub(super) fn plan_group(group: Group, frame: usize) -> GroupNode {
    let sets = group.sets.map(|sets| {
        let keys = 0..group.keys.len();
        sets.into_iter().map(|set| keys.clone().map(|key| set.contains(&key)).collect()).collect()
    });
    let all = [vec![true; group.keys.len()]];
    let aggregates = group.aggregates.into_iter().map(|call| {
        let sets: &[Vec<bool>] = sets.as_deref().unwrap_or(&all);
        // A bit for each argument, the first the highest: whether the set does without it.
        let value = |places: &Vec<usize>, set: &Vec<bool>| {
            places.iter().fold(0, |bits, place| bits << 1 | i32::from(!set[*place]))
        };
        let order = match call.distinct && call.order.is_empty() && shows_order(&call) {
            true => call.arguments.iter().map(|argument| (argument.clone(), false, false)).collect(),
            false => call.order,
        };
        AggregateNode {
            grouping: call.grouping.map(|places| sets.iter().map(|set| value(&places, set)).collect()),
            function: call.function,
            arguments: call.arguments,
            distinct: call.distinct,
            order,
            filter: call.filter,
            average_of: None,
        }
    });
    let mut aggregates: Vec<AggregateNode> = aggregates.collect();
    share_sums(&mut aggregates);
    let computed = take_common(&mut aggregates, frame);
    GroupNode { keys: group.keys, computed, aggregates, sets, having: group.having }
}

/// Whether the order of its rows shows in an aggregate's value. With DISTINCT, and no ORDER BY, it
/// is that of the arguments, as PostgreSQL finds equal ones by a sort.
fn shows_order(call: &AggregateCall) -> bool {
    let names = ["array_agg", "string_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"];
    names.contains(&call.function.function.name)
}

impl GroupNode {
    /// Number of places of the group's frame.
    pub(crate) fn width(&self) -> usize {
        self.keys.len() + self.aggregates.len()
    }
}
