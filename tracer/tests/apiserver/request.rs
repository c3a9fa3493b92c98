//! What a request asks for, by its path, as the API has it.

use std::collections::BTreeMap;

use hyper::Method;

/// What is to be done, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// One object.
    Get,
    /// All objects.
    List,
    /// Changes from now on.
    Watch,
    /// A new object, or an exec, an attach.
    Create,
    /// A change.
    Patch,
    /// A replacement.
    Update,
    /// A deletion.
    Delete,
}

impl Verb {
    /// As RBAC spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Delete => "delete",
        }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// What is to be done.
    pub(crate) verb: Verb,
    /// `v1`, `apps/v1`, …
    pub(crate) api_version: String,
    /// The plural, with the subresource: `pods`, `pods/exec`.
    pub(crate) resource: String,
    /// The namespace; none for all of them.
    pub(crate) namespace: Option<String>,
    /// The object's name; none for all of them.
    pub(crate) name: Option<String>,
    /// What stands behind the question mark.
    pub(crate) query: BTreeMap<String, String>,
}

impl Ask {
    /// Reads a request's method and path; none if the path is none of the API's resources.
    pub(crate) fn read(method: &Method, path: &str, query: Option<&str>) -> Option<Ask> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (api_version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let (resource, name) = match rest {
            [resource] => ((*resource).to_owned(), None),
            [resource, name] => ((*resource).to_owned(), Some(*name)),
            [resource, name, sub] => (format!("{resource}/{sub}"), Some(*name)),
            _ => return None,
        };
        let query: BTreeMap<String, String> = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decoded(key), decoded(value))
            })
            .collect();
        let is_watch = query.get("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let is_sub = resource.contains('/');
        let verb = match *method {
            Method::GET if is_watch => Verb::Watch,
            Method::GET if name.is_some() => Verb::Get,
            Method::GET => Verb::List,
            Method::POST => Verb::Create,
            Method::PATCH => Verb::Patch,
            Method::PUT if is_sub => Verb::Update,
            Method::PUT => Verb::Update,
            Method::DELETE => Verb::Delete,
            _ => return None,
        };
        let name = name.map(str::to_owned);
        Some(Ask { verb, api_version, resource, namespace, name, query })
    }

    /// The API group, without the version.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// A whole number of the query.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.query.get(key)?.parse().ok()
    }

    /// Whether a switch of the query is on.
    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.query.get(key).is_some_and(|value| value == "true" || value == "1")
    }

    /// Whether an object is among those that are asked for: by namespace, name, labels and fields.
    pub(crate) fn wants(&self, object: &serde_json::Value) -> bool {
        let metadata = &object["metadata"];
        self.namespace.as_deref().is_none_or(|namespace| metadata["namespace"] == namespace)
            && self.name.as_deref().is_none_or(|name| metadata["name"] == name)
            && self.selects("labelSelector", |key| metadata["labels"][key].as_str())
            && self.selects("fieldSelector", |path| {
                path.split('.').fold(object, |at, part| &at[part]).as_str()
            })
    }

    fn selects<'a>(&self, selector: &str, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        let selector = self.query.get(selector).map(String::as_str).unwrap_or_default();
        selector.split(',').filter(|term| !term.is_empty()).all(|term| {
            if let Some((key, wanted)) = term.split_once("!=") {
                value(key) != Some(wanted)
            } else if let Some((key, wanted)) = term.split_once('=') {
                value(key) == Some(wanted.trim_start_matches('='))
            } else {
                value(term).is_some()
            }
        })
    }
}

/// Percent and plus signs resolved.
fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => decoded.push(b' '),
            b'%' => {
                let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                let digits = String::from_utf8_lossy(&digits).into_owned();
                decoded.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            byte => decoded.push(byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
