//! A client's portals by name. The empty name is the unnamed one: it may be replaced at any time,
//! and is what most drivers use, so it has a slot of its own.

use std::collections::HashMap;

/// Most named things of one kind in a connection.
const NAMED_MAX: usize = 100_000;

/// Things by name.
#[derive(Debug)]
pub struct Names<T> {
    unnamed: Option<T>,
    named: HashMap<Box<str>, T>,
}

/// Why a name was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in use.
    Exists,
    /// There are too many names.
    Full,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Names { unnamed: None, named: HashMap::new() }
    }
}

impl<T> Names<T> {
    /// Whether a new thing may have this name.
    pub fn check_free(&self, name: &str) -> Result<(), Taken> {
        if name.is_empty() {
            Ok(())
        } else if self.named.contains_key(name) {
            Err(Taken::Exists)
        } else if self.named.len() >= NAMED_MAX {
            Err(Taken::Full)
        } else {
            Ok(())
        }
    }

    /// Puts a thing under a name, in place of what was there.
    pub fn put(&mut self, name: &str, thing: T) {
        if name.is_empty() {
            self.unnamed = Some(thing);
        } else if let Some(slot) = self.named.get_mut(name) {
            *slot = thing;
        } else {
            self.named.insert(name.into(), thing);
        }
    }

    /// The thing of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) }
    }

    /// Changes all of them.
    pub fn for_each(&mut self, change: impl FnMut(&mut T)) {
        self.unnamed.iter_mut().chain(self.named.values_mut()).for_each(change);
    }

    /// Forgets all but those that are to stay.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        drop(self.unnamed.take_if(|thing| !stays(&*thing)));
        self.named.retain(|_, thing| stays(&*thing));
    }

    /// Takes the thing of this name out; it may be put back.
    pub fn take(&mut self, name: &str) -> Option<T> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.unnamed = None;
        if !self.named.is_empty() {
            self.named.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unnamed_one_may_be_replaced_and_others_not() {
        let mut names = Names::default();
        names.put("", 1);
        assert_eq!(names.check_free(""), Ok(()));
        names.put("", 2);
        names.put("a", 3);
        assert_eq!(names.check_free("a"), Err(Taken::Exists));
        assert_eq!((names.get(""), names.get("a"), names.get("b")), (Some(&2), Some(&3), None));
        names.remove("a");
        assert_eq!(names.check_free("a"), Ok(()));
        names.clear();
        assert_eq!(names.get(""), None);
    }

    #[test]
    fn those_that_are_not_to_stay_are_forgotten_by_any_name() {
        let mut names = Names::default();
        for (name, thing) in [("", 1), ("a", 2), ("b", 3)] {
            names.put(name, thing);
        }
        names.retain(|thing| *thing > 1);
        assert_eq!((names.get(""), names.get("a"), names.get("b")), (None, Some(&2), Some(&3)));
        names.put("", 5);
        names.retain(|thing| *thing != 3);
        assert_eq!((names.get("a"), names.get("b")), (Some(&2), None));
        assert_eq!(names.get_mut(""), Some(&mut 5));
        names.for_each(|thing| *thing += 1);
        assert_eq!((names.get(""), names.get("a")), (Some(&6), Some(&3)));
    }
}
