//! The first rows of each partition, where no others are wanted: what is certainly not among them
//! is not sorted.
//!
//! For each partition the first bytes of its best rows' keys are kept, in the form that orders by
//! bytes. A row behind as many others as are wanted cannot be among the first. More rows than those
//! may pass; they are sorted and numbered as always.
//!
//! ```text
//! two wanted, rows of one partition by their keys      5 3 9 3 4 1 2      9 and 4 do not pass
//! ```

use crate::error::Result;
use crate::oltp::Context;
use crate::oltp::keyed::Keyed;
use crate::oltp::memory::row_bytes;
use crate::oltp::packed::pack;
use crate::oltp::sort::key_prefix;
use crate::plan::WindowNode;
use crate::types::Datum;

/// More rows of a partition than this are not kept apart.
const WANTED_MAX: usize = 64;

/// What is known of the partitions.
pub(super) struct First {
    wanted: usize,
    places: Keyed<usize>,
    /// For each partition the first bytes of the wanted rows, ascending; the largest number for
    /// rows that have not come.
    best: Vec<u128>,
    partitions: usize,
    key: Vec<u8>,
    values: Vec<Datum>,
    bytes: usize,
}

impl First {
    /// None if all rows are wanted, or many of each partition.
    pub(super) fn new(node: &WindowNode, context: Context<'_>) -> Result<Option<First>> {
        let Some(first) = &node.first else { return Ok(None) };
        let bound = first.bound.eval(&context.env(&[]))?.as_i64();
        let wanted = bound.map(|bound| bound.saturating_sub(i64::from(first.less)).max(0));
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        Ok(wanted.filter(|wanted| *wanted <= WANTED_MAX).map(|wanted| First {
            wanted,
            places: Keyed::default(),
            best: vec![],
            partitions: 0,
            key: vec![],
            values: vec![],
            bytes: 0,
        }))
    }

    /// Gives back the memory it accounts for.
    pub(super) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
    }

    /// Whether a row may be among the first of its partition. None if there is no memory to tell.
    pub(super) fn passes(
        &mut self,
        row: &[Datum],
        node: &WindowNode,
        context: Context<'_>,
    ) -> Result<Option<bool>> {
        if self.wanted == 0 {
            return Ok(Some(false));
        }
        let Some(partition) = self.partition(row, node, context)? else { return Ok(None) };
        let prefix = key_prefix(row, &node.order, &mut self.key);
        let best = &mut self.best[partition * self.wanted..][..self.wanted];
        if prefix > best[self.wanted - 1] {
            return Ok(Some(false));
        }
        let at = best.partition_point(|known| *known <= prefix);
        if at < best.len() {
            best[at..].rotate_right(1);
            best[at] = prefix;
        }
        Ok(Some(true))
    }

    /// The number of a row's partition.
    fn partition(&mut self, row: &[Datum], node: &WindowNode, context: Context<'_>) -> Result<Option<usize>> {
        let values = || node.partition.iter().map(|key| &row[key.column]);
        let packed = pack(values());
        self.values.clear();
        if packed.is_none() {
            self.values.extend(values().cloned());
        }
        if let Some(&known) = self.places.get(packed, &self.values) {
            return Ok(Some(known));
        }
        let bytes = row_bytes(&self.values) + 64 + self.wanted * size_of::<u128>();
        if context.execution.is_tight(self.bytes, bytes) {
            return Ok(None);
        }
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        self.places.insert(packed, &self.values, self.partitions);
        self.best.resize(self.best.len() + self.wanted, u128::MAX);
        self.partitions += 1;
        Ok(Some(self.partitions - 1))
    }
}
