//! Planning of GROUP BY and its grouping sets.

use super::common::{share_sums, take_common};
use super::{AggregateNode, GroupNode};
use crate::bind::Group;

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
        AggregateNode {
            grouping: call.grouping.map(|places| sets.iter().map(|set| value(&places, set)).collect()),
            function: call.function,
            arguments: call.arguments,
            distinct: call.distinct,
            order: call.order,
            filter: call.filter,
            average_of: None,
        }
    });
    let mut aggregates: Vec<AggregateNode> = aggregates.collect();
    share_sums(&mut aggregates);
    let computed = take_common(&mut aggregates, frame);
    GroupNode { keys: group.keys, computed, aggregates, sets, having: group.having }
}

impl GroupNode {
    /// Number of places of the group's frame.
    pub(crate) fn width(&self) -> usize {
        self.keys.len() + self.aggregates.len()
    }
}
