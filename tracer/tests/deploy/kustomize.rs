//! Kustomizations: what they refer to is there, and what comes of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::round_trip::unknown;
use crate::{deploy, documents, files, list, read, text};

/// The kustomizations that are applied by themselves: all but components.
pub(crate) fn roots() -> Vec<PathBuf> {
    let all = files("yaml").into_iter().filter(|path| path.ends_with("kustomization.yaml"));
    let roots = all.filter(|path| text(&read(path)[0], "/kind") == "Kustomization");
    roots.map(|path| path.parent().expect("it lies in a folder").to_owned()).collect()
}

/// The objects that kubectl makes of a kustomization; none where there is no kubectl.
pub(crate) fn rendered(folder: &Path, test: &str) -> Option<Vec<Value>> {
    let output = match Command::new("kubectl").arg("kustomize").arg(folder).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("left out: {test}: no kubectl on this machine ({error})");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", folder.display());
    // Deprecations come as warnings with status 0.
    assert!(said.trim().is_empty(), "{}: {said}", folder.display());
    Some(documents(&String::from_utf8(output.stdout).expect("kubectl writes UTF-8")))
}

#[test]
fn kustomizations_know_only_fields_that_kustomize_knows_and_refer_to_what_is_there() {
    const FIELDS: [&str; 6] =
        ["apiVersion", "kind", "namespace", "resources", "components", "patches"];
    let mut referred = Vec::new();
    for path in files("yaml").into_iter().filter(|path| path.ends_with("kustomization.yaml")) {
        let [kustomization] = read(&path).try_into().expect("one document");
        let folder = path.parent().expect("it lies in a folder");
        let fields = kustomization.as_object().expect("a mapping");
        for field in fields.keys() {
            assert!(FIELDS.contains(&field.as_str()), "{}: {field}", path.display());
        }
        let names = list(&kustomization, "/resources").iter();
        let names = names.chain(list(&kustomization, "/components"));
        let patches = list(&kustomization, "/patches").iter();
        let paths = names.chain(patches.map(|patch| &patch["path"]));
        for reference in paths.map(|path| path.as_str().expect("a path")) {
            let at = folder.join(reference);
            let file = if at.is_dir() { at.join("kustomization.yaml") } else { at };
            assert!(file.is_file(), "{}: there is no {reference}", path.display());
            referred.push(file.canonicalize().expect("it is there"));
        }
    }
    // And the other way round: no manifest lies about unused.
    let applied =
        ["kustomization.yaml", "demo", "load", "kind/cluster.yaml", "prometheus/rules.yaml"];
    for path in files("yaml") {
        let named = path.strip_prefix(deploy()).expect("it lies in there");
        let is_root = path.ends_with("kustomization.yaml")
            && (named.parent() == Some(Path::new("")) || named.components().count() <= 3);
        let is_applied = applied.iter().any(|at| named == Path::new(at)) || is_root;
        assert!(is_applied || referred.contains(&path), "nothing refers to {}", named.display());
    }
}

#[test]
fn what_kubectl_makes_of_each_kustomization_is_what_the_api_knows() {
    let mut objects = 0;
    for folder in roots() {
        let test = "what_kubectl_makes_of_each_kustomization_is_what_the_api_knows";
        let Some(rendered) = rendered(&folder, test) else { return };
        for object in &rendered {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            let place = format!("{}: {kind} {name}", folder.display());
            assert_eq!(unknown(object), Ok(Vec::new()), "{place}");
            objects += 1;
        }
    }
    assert!(objects > 30, "only {objects} objects");
}

/// Six setups of the lab and of deploy/demo: the same names, and the same in what counts.
#[test]
fn the_demo_app_has_the_setups_of_the_lab() {
    for setup in tracer::lab::SETUPS {
        let folder = deploy().join("demo").join(setup.name);
        let Some(objects) = rendered(&folder, "the_demo_app_has_the_setups_of_the_lab") else {
            return;
        };
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
        let container =
            &deployment.expect("a Deployment")["spec"]["template"]["spec"]["containers"][0];
        let has = |argument: &str| list(container, "/args").iter().any(|one| one == argument);
        let name = setup.name;
        assert_eq!(container["readinessProbe"].is_object(), setup.readiness, "{name}");
        let sleep = container.pointer("/lifecycle/preStop/sleep/seconds").and_then(Value::as_u64);
        assert_eq!(sleep, setup.prestop.map(|sleep| sleep.as_secs()), "{name}");
        use tracer::lab::OnSigterm;
        assert_eq!(has("--drain"), setup.on_sigterm == OnSigterm::Drain, "{name}");
        assert_eq!(has("--ignore-sigterm"), setup.on_sigterm == OnSigterm::Nothing, "{name}");
        let arguments = list(container, "/args").iter();
        let arguments: Vec<String> =
            arguments.map(|one| one.as_str().expect("a string").to_owned()).collect();
        assert_eq!(tracer::cli::accepts(&arguments), Ok(()), "{name}");
    }
}
