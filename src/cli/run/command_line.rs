//! What the arguments of a run's command say of cluster and user.

use std::ffi::OsString;

use crate::kubeconfig::{Context, Kubeconfig};

/// kubectl commands whose `--user` names the subject of a role binding.
const OTHER_USERS: [&str; 3] = ["clusterrolebinding", "rolebinding", "subject"];

/// A command's name and its arguments.
pub(super) struct CommandLine<'a>(pub(super) &'a [OsString]);

impl CommandLine<'_> {
    /// The context that the arguments name, as kubectl and helm take it.
    pub(super) fn context(&self) -> Option<String> {
        self.option("--context").or_else(|| self.option("--kube-context"))
    }

    /// Whether the arguments name a cluster, or a context that does.
    pub(super) fn names_cluster(&self) -> bool {
        self.context().is_some() || self.option("--cluster").is_some()
    }

    /// The context that the command will use, as far as its arguments show, with the cluster and the
    /// user that they name instead.
    pub(super) fn selected_context(&self, kubeconfig: &Kubeconfig) -> Option<Context> {
        let named = self.context();
        let name = named.as_deref().or_else(|| kubeconfig.current_context());
        let known = name.and_then(|name| kubeconfig.context(name).ok());
        let is_other_user = |word| OTHER_USERS.iter().any(|other| word == other);
        let user = self.option("--user");
        let user = user.filter(|_| !self.0.iter().any(is_other_user));
        match (known, self.option("--cluster"), user) {
            (Some(known), cluster, user) => Some(Context {
                name: known.name,
                cluster: cluster.unwrap_or(known.cluster),
                user: user.unwrap_or(known.user),
            }),
            (None, Some(cluster), Some(user)) => {
                Some(Context { name: String::new(), cluster, user })
            }
            (None, ..) => None,
        }
    }

    /// The value of an option before a `--`.
    fn option(&self, name: &str) -> Option<String> {
        let arguments = self.0.iter().skip(1).map(|it| it.to_string_lossy());
        let mut arguments = arguments.take_while(|argument| argument != "--");
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix(name) {
                Some("") => return Some(arguments.next().unwrap_or_default().into_owned()),
                Some(rest) if rest.starts_with('=') => return rest.get(1..).map(str::to_owned),
                _ => {}
            }
        }
        None
    }
}
