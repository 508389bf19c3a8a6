//! The settings that say as whom a session acts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Mark, Settings, definition};
use crate::catalog::Oid;

/// Those that change while a procedure runs with its owner's rights.
const ACTING: [&str; 2] = ["role", "is_superuser"];

impl Settings {
    /// Sets one of those that say who the session is, once somebody has seen that it may be that.
    /// `role` is the role of that name, if it is not that of the connection.
    pub(crate) fn put(&mut self, name: &str, value: &str, role: Option<Oid>, local: bool) {
        let Some(index) = definition::find(name) else { return };
        let default = &self.defaults.values[index];
        let value: Arc<str> = if **default == *value { default.clone() } else { value.into() };
        let state = Arc::make_mut(&mut self.state);
        state.local_roles.remove(&index);
        if local {
            state.local.insert(index, value);
            state.local_roles.extend(role.map(|role| (index, role)));
        } else {
            state.local.remove(&index);
            state.session[index] = value;
            state.roles.remove(&index);
            state.roles.extend(role.map(|role| (index, role)));
        }
        self.refresh();
    }

    /// From here on a procedure runs with its owner's rights.
    pub(in crate::session) fn begin_acting(&mut self) {
        Arc::make_mut(&mut self.state).acting = true;
    }

    /// Whether one does.
    pub(in crate::session) fn is_acting(&self) -> bool {
        self.state.acting
    }

    /// Acts again as whom it did at that state. Other settings stay what they have become.
    pub(in crate::session) fn act_as_before(&mut self, mark: &Mark) {
        let Mark(before) = mark;
        let state = Arc::make_mut(&mut self.state);
        state.acting = before.acting;
        for index in ACTING.into_iter().filter_map(definition::find) {
            state.session[index] = before.session[index].clone();
            put_back(&mut state.local, &before.local, index);
            put_back(&mut state.roles, &before.roles, index);
            put_back(&mut state.local_roles, &before.local_roles, index);
        }
        self.refresh();
    }
}

fn put_back<V: Clone>(now: &mut BTreeMap<usize, V>, before: &BTreeMap<usize, V>, index: usize) {
    now.remove(&index);
    now.extend(before.get(&index).map(|value| (index, value.clone())));
}
