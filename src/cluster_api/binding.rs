//! RoleBindings and ClusterRoleBindings: whom they give a role, and how that is taken away from one of them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClusterApi as _, Kubectl, decoded};
use messages::error::{Error, Exit};

/// The API group of RBAC, in which the subjects of a binding are, too.
const GROUP: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "rbac.authorization.k8s.io/v1";
const PATH: &str = "/apis/rbac.authorization.k8s.io/v1";
/// What the server is asked to do, for messages.
const PURPOSE: &str = "list the bindings of roles";

/// Somebody to whom a binding gives a role. The `kind` is `User`, `Group` or `ServiceAccount`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Subject {
    pub kind: String,
    pub name: String,
}

impl Subject {
    pub fn user(name: &str) -> Self {
        Self { kind: "User".to_owned(), name: name.to_owned() }
    }

    pub fn group(name: &str) -> Self {
        Self { kind: "Group".to_owned(), name: name.to_owned() }
    }

    pub fn is_user(&self) -> bool {
        self.kind == "User"
    }
}

/// A RoleBinding or ClusterRoleBinding as the API server gave it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    pub kind: BindingKind,
    pub metadata: Metadata,
    pub role_ref: Role,
    #[serde(default)]
    pub subjects: Vec<Subject>,
    /// The whole object, to be sent back.
    #[serde(skip)]
    object: Value,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum BindingKind {
    ClusterRoleBinding,
    RoleBinding,
}

impl BindingKind {
    /// The name of the resource in kubectl's arguments and in URLs, in the singular.
    fn resource(self) -> &'static str {
        match self {
            Self::ClusterRoleBinding => "clusterrolebinding",
            Self::RoleBinding => "rolebinding",
        }
    }

    /// The `kind` of such objects.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::RoleBinding => "RoleBinding",
        }
    }
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    /// The binding's namespace; `None` for a ClusterRoleBinding, which counts in all of them.
    #[serde(default)]
    pub namespace: Option<String>,
    uid: String,
    resource_version: String,
}

/// The role that a binding gives. The `kind` is `Role` or `ClusterRole`.
#[derive(Clone, Debug, Deserialize)]
pub struct Role {
    pub kind: String,
    pub name: String,
}

impl Binding {
    /// All bindings of the cluster.
    pub fn all(kubectl: &Kubectl) -> Result<Vec<Self>, Error> {
        let mut bindings = Vec::new();
        for kind in [BindingKind::ClusterRoleBinding, BindingKind::RoleBinding] {
            let path = format!("{PATH}/{}s", kind.resource());
            for item in kubectl.list_at(&path, PURPOSE)? {
                bindings.push(Self::of_list(kubectl, kind, item)?);
            }
        }
        Ok(bindings)
    }

    /// Whether the binding gives this subject a role.
    pub fn names(&self, subject: &Subject) -> bool {
        self.subjects.contains(subject)
    }

    /// Reads the binding of this kind from an item of a list. The items have no kind of their own: the list says it for
    /// all.
    fn of_list(kubectl: &Kubectl, kind: BindingKind, mut object: Value) -> Result<Self, Error> {
        if let Some(members) = object.as_object_mut() {
            members.insert("apiVersion".to_owned(), VERSION.into());
            members.insert("kind".to_owned(), kind.name().into());
        }
        Self::of(kubectl, object)
    }

    fn of(kubectl: &Kubectl, object: Value) -> Result<Self, Error> {
        let mut binding: Self = decoded(kubectl.cluster(), PURPOSE, object.clone())?;
        binding.object = object;
        Ok(binding)
    }

    /// How many subjects besides this one have the role.
    pub fn others(&self, subject: &Subject) -> usize {
        self.subjects.iter().filter(|other| *other != subject).count()
    }

    /// The arguments for kubectl that take the role away from this subject. They delete the binding if it has no other
    /// subject. Otherwise they remove the subject, unless it is at another place of the list by then.
    pub fn removal(&self, subject: &Subject) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(namespace) = &self.metadata.namespace {
            arguments.push(format!("--namespace={namespace}"));
        }
        let object = format!("{}/{}", self.kind.resource(), self.metadata.name);
        if self.others(subject) == 0 {
            arguments.extend(["delete".to_owned(), object]);
        } else {
            arguments.extend(["patch".to_owned(), object, "--type=json".to_owned()]);
            arguments.push(format!("--patch={}", self.patch(subject)));
        }
        arguments
    }

    /// A JSON patch (RFC 6902) that removes the subject.
    fn patch(&self, subject: &Subject) -> Value {
        let mut operations = Vec::new();
        // The last one is removed first, so that those before it keep their places.
        for (index, other) in self.subjects.iter().enumerate().rev() {
            if other == subject {
                let path = format!("/subjects/{index}");
                let value = &self.object["subjects"][index];
                operations.push(json!({"op": "test", "path": path, "value": value}));
                operations.push(json!({"op": "remove", "path": path}));
            }
        }
        operations.into()
    }

    /// Takes the role away from this subject. Fails if the binding has changed since it was read, and still names the subject.
    pub fn remove(&self, kubectl: &Kubectl, subject: &Subject) -> Result<(), Error> {
        let removed = if self.others(subject) == 0 {
            self.delete(kubectl)
        } else {
            self.replace_without(kubectl, subject)
        };
        let Err(error) = removed else { return Ok(()) };
        match self.now(kubectl) {
            // The API server may have done it, and only its answer was lost.
            Ok(None) => Ok(()),
            Ok(Some(now)) if !now.names(subject) => Ok(()),
            Ok(Some(now)) if now.metadata != self.metadata => {
                let text = format!("{self} is no longer as it was shown, and was left as it is");
                Err(Error::new(Exit::Cluster, text).help("look at it as it is now"))
            }
            Ok(Some(_)) | Err(_) => Err(error),
        }
    }

    fn delete(&self, kubectl: &Kubectl) -> Result<(), Error> {
        let Metadata { uid, resource_version, .. } = &self.metadata;
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        });
        let purpose = format!("delete {self}");
        kubectl.run(&["delete", "--raw", &self.path()], Some(&options), &purpose).map(drop)
    }

    /// Sends the binding back as it was read, with its resourceVersion, but without the subject.
    fn replace_without(&self, kubectl: &Kubectl, subject: &Subject) -> Result<(), Error> {
        let mut object = self.object.clone();
        if let Some(subjects) = object["subjects"].as_array_mut() {
            let mut known = self.subjects.iter();
            subjects.retain(|_| known.next() != Some(subject));
        }
        let purpose = format!("change {self}");
        kubectl.run(&["replace", "--raw", &self.path()], Some(&object), &purpose).map(drop)
    }

    /// The binding of this name as the cluster has it now; `None` if there is none.
    fn now(&self, kubectl: &Kubectl) -> Result<Option<Self>, Error> {
        let object = format!("{}.{GROUP}/{}", self.kind.resource(), self.metadata.name);
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let arguments = [object, format!("--namespace={namespace}")];
        let found = kubectl.get(&arguments.each_ref().map(String::as_str), PURPOSE)?;
        found.map(|found| Self::of(kubectl, found)).transpose()
    }

    fn path(&self) -> String {
        let Metadata { name, namespace, .. } = &self.metadata;
        let resource = self.kind.resource();
        let place = namespace
            .as_ref()
            .map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
        format!("{PATH}{place}/{resource}s/{}", path_segment(name))
    }
}

/// Shows the binding as `RoleBinding "edits" in namespace "team"`. The names are as the server has them.
impl std::fmt::Display for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.kind.name(), self.metadata.name)?;
        match &self.metadata.namespace {
            Some(namespace) => write!(f, " in namespace {namespace:?}"),
            None => Ok(()),
        }
    }
}

/// The characters that are encoded in a part of a URL's path.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Encodes a name as a part of a URL's path: names of bindings and roles can have any character but `/` and `%`.
fn path_segment(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(kind: &str, subjects: &Value) -> Binding {
        let object = json!({
            "kind": kind,
            "metadata": {"name": "a?b c", "namespace": "team", "uid": "u", "resourceVersion": "7"},
            "roleRef": {"kind": "ClusterRole", "name": "edit"},
            "subjects": subjects,
        });
        let mut binding: Binding = serde_json::from_value(object.clone()).unwrap();
        binding.object = object;
        binding
    }

    #[test]
    fn a_name_leads_to_no_other_path() {
        let binding = binding("RoleBinding", &json!([]));
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings/a%3Fb%20c";
        assert_eq!(binding.path(), path);
        assert_eq!(path_segment("system:kube-dns.é"), "system:kube-dns.%C3%A9");
    }

    #[test]
    fn a_subject_is_removed_wherever_it_stands() {
        let [jane, bob] = ["jane", "bob"].map(Subject::user);
        let user = |name: &str| json!({"kind": "User", "name": name});
        let several = json!([user("jane"), user("bob"), user("jane")]);
        let several = binding("ClusterRoleBinding", &several);
        assert_eq!((several.others(&jane), several.others(&bob)), (1, 2));
        let patch = several.patch(&jane);
        let paths: Vec<_> = patch.as_array().unwrap().iter().map(|it| &it["path"]).collect();
        assert_eq!(paths, ["/subjects/2", "/subjects/2", "/subjects/0", "/subjects/0"]);
        let alone = binding("RoleBinding", &json!([user("jane")]));
        assert_eq!(alone.removal(&jane), ["--namespace=team", "delete", "rolebinding/a?b c"]);
    }
}
