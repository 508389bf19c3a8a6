//! What is known by instance, in the order of the instances: one line each, most often one in all,
//! which needs no memory of its own.
//!
//! New instances have the highest numbers and tombstones take the lowest lines, so lines come and
//! go at the ends.

use smallvec::SmallVec;

use super::Instance;

/// A small ordered map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lines<V>(SmallVec<[(Instance, V); 1]>);

impl<V> Default for Lines<V> {
    fn default() -> Lines<V> {
        Lines(SmallVec::new())
    }
}

impl<V> Lines<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn place(&self, instance: Instance) -> Result<usize, usize> {
        self.0.binary_search_by_key(&instance, |line| line.0)
    }

    pub(super) fn get(&self, instance: Instance) -> Option<&V> {
        self.place(instance).ok().map(|place| &self.0[place].1)
    }

    pub(super) fn contains(&self, instance: Instance) -> bool {
        self.place(instance).is_ok()
    }

    /// Puts a line in the place of the instance's old one, if it has one.
    pub(super) fn insert(&mut self, instance: Instance, value: V) {
        match self.place(instance) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (instance, value)),
        }
    }

    pub(super) fn remove(&mut self, instance: Instance) -> Option<V> {
        self.place(instance).ok().map(|place| self.0.remove(place).1)
    }

    pub(super) fn last(&self) -> Option<Instance> {
        self.0.last().map(|line| line.0)
    }

    /// Takes out the lines below `instance`, ascending.
    pub(super) fn take_below(&mut self, instance: Instance) -> Vec<(Instance, V)> {
        let end = self.0.partition_point(|line| line.0 < instance);
        self.0.drain(..end).collect()
    }

    /// Ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Instance, &V)> {
        self.0.iter().map(|(instance, value)| (*instance, value))
    }

    /// Takes all out, ascending.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Instance, V)> + use<V> {
        std::mem::take(&mut self.0).into_iter()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
