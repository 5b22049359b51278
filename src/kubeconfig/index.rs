//! The places of a kubeconfig's entries, so that finding one costs the same however many there are.

use std::collections::HashMap;

use serde_json::Value;

use super::{EntryKind, name_of};

/// The positions of the entries in their lists, by kind and name.
#[derive(Clone, Default)]
pub(super) struct EntryIndex {
    clusters: HashMap<String, usize>,
    users: HashMap<String, usize>,
    contexts: HashMap<String, usize>,
}

impl EntryIndex {
    /// Makes the index of a kubeconfig's lists.
    pub(super) fn of(config: &Value) -> Self {
        let mut index = Self::default();
        for kind in [EntryKind::Cluster, EntryKind::User, EntryKind::Context] {
            let elements = config[kind.list()].as_array().into_iter().flatten();
            for (position, element) in elements.enumerate() {
                index.add(kind, name_of(element), position);
            }
        }
        index
    }

    /// The position of the entry of this kind and name in its list; `None` if there is none.
    pub(super) fn position(&self, kind: EntryKind, name: &str) -> Option<usize> {
        self.positions(kind).get(name).copied()
    }

    /// Notes the position of an entry. If several have no name, the first one counts, as for kubectl.
    pub(super) fn add(&mut self, kind: EntryKind, name: &str, position: usize) {
        self.positions_mut(kind).entry(name.to_owned()).or_insert(position);
    }

    fn positions(&self, kind: EntryKind) -> &HashMap<String, usize> {
        match kind {
            EntryKind::Cluster => &self.clusters,
            EntryKind::User => &self.users,
            EntryKind::Context => &self.contexts,
        }
    }

    fn positions_mut(&mut self, kind: EntryKind) -> &mut HashMap<String, usize> {
        match kind {
            EntryKind::Cluster => &mut self.clusters,
            EntryKind::User => &mut self.users,
            EntryKind::Context => &mut self.contexts,
        }
    }
}
