//! What the binary is made of, as a CycloneDX list (cyclonedx.org, JSON 1.5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use cyclonedx_bom::external_models::normalized_string::NormalizedString;
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::bom::Bom;
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata as BomMetadata;
use serde_json::Value;

use crate::process;

/// The crates that end up in the image: the program, and the BPF programs inside it.
const ROOTS: [&str; 2] = ["tracer", "tracer-ebpf"];

/// What cargo knows of the program.
pub(super) struct Metadata {
    /// tracer's version.
    pub(super) version: String,
    /// Its licences, as an SPDX expression.
    pub(super) licenses: String,
    /// Everything in it, by package id.
    packages: BTreeMap<String, Package>,
}

struct Package {
    name: String,
    version: String,
    license: Option<String>,
    is_published: bool,
    needs: BTreeSet<String>,
}

impl Package {
    fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Asks cargo.
pub(super) fn metadata(root: &Path, triple: &str) -> Result<Metadata> {
    let mut command = process::cargo(root);
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let text = process::read(command.args(["--filter-platform", triple]))?;
    parse(&text).context("reading what cargo metadata says")
}

fn parse(text: &str) -> Result<Metadata> {
    let all: Value = serde_json::from_str(text)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut packages = BTreeMap::new();
    for package in list(&all["packages"]) {
        let id = text(&package["id"]).context("a package without an id")?;
        packages.insert(
            id,
            Package {
                name: text(&package["name"]).context("a package without a name")?,
                version: text(&package["version"]).context("a package without a version")?,
                license: text(&package["license"]),
                is_published: package["source"].is_string(),
                needs: BTreeSet::new(),
            },
        );
    }
    for node in list(&all["resolve"]["nodes"]) {
        let id = text(&node["id"]).context("a node without an id")?;
        let package = packages.get_mut(&id).context("a node that is no package")?;
        for needed in list(&node["deps"]) {
            // What only tests or build scripts need is not in the binary.
            if list(&needed["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                package.needs.extend(text(&needed["pkg"]));
            }
        }
    }
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let is_root = |package: &Package| !package.is_published && ROOTS.contains(&&*package.name);
    let roots = packages.iter().filter(|(_, package)| is_root(package));
    let mut next: Vec<String> = roots.map(|(id, _)| id.clone()).collect();
    while let Some(id) = next.pop() {
        if let Some(package) = packages.get(&id)
            && reached.insert(id)
        {
            next.extend(package.needs.iter().cloned());
        }
    }
    packages.retain(|id, _| reached.contains(id));
    let tracer = packages.values().find(|package| package.name == ROOTS[0]);
    let tracer = tracer.context("there is no package tracer")?;
    Ok(Metadata {
        version: tracer.version.clone(),
        licenses: tracer.license.clone().context("tracer has no licence")?,
        packages,
    })
}

/// The list as JSON. It has no serial number and no time, so that the same parts give the same bytes.
pub(super) fn render(metadata: &Metadata) -> Result<String> {
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    let mut main = None;
    for package in metadata.packages.values() {
        let component = component(package)?;
        if package.name == ROOTS[0] && !package.is_published {
            main = Some(component);
        } else {
            components.push(component);
        }
        let needs = package.needs.iter().filter_map(|id| metadata.packages.get(id));
        dependencies.push(Dependency {
            dependency_ref: package.reference(),
            dependencies: needs.map(Package::reference).collect(),
        });
    }
    let bom = Bom {
        serial_number: None,
        metadata: Some(BomMetadata { component: main, ..BomMetadata::default() }),
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    };
    let mut bytes = Vec::new();
    bom.output_as_json_v1_5(&mut bytes).context("writing the list of parts")?;
    Ok(String::from_utf8(bytes)?)
}

fn component(package: &Package) -> Result<Component> {
    let kind = match package.name.as_str() {
        "tracer" => Classification::Application,
        _ => Classification::Library,
    };
    let mut component =
        Component::new(kind, &package.name, &package.version, Some(package.reference()));
    if package.is_published {
        component.purl = Some(Purl::new("cargo", &package.name, &package.version)?);
    }
    component.licenses = package.license.as_ref().map(|license| {
        // Some still write `/`, cargo's old way to say OR.
        Licenses(vec![LicenseChoice::expression(&license.replace('/', " OR "))])
    });
    component.name = NormalizedString::new(&package.name);
    Ok(component)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    /// tracer needs serde, its tests need proptest, and xtask is not in the image.
    const CARGO: &str = r#"{
        "packages": [
            {"id": "t", "name": "tracer", "version": "0.1.0", "license": "MIT OR Apache-2.0", "source": null},
            {"id": "e", "name": "tracer-ebpf", "version": "0.1.0", "license": "MIT", "source": null},
            {"id": "x", "name": "xtask", "version": "0.1.0", "license": "MIT", "source": null},
            {"id": "s", "name": "serde", "version": "1.0.1", "license": "MIT/Apache-2.0", "source": "registry"},
            {"id": "p", "name": "proptest", "version": "1.2.3", "license": "MIT", "source": "registry"}
        ],
        "resolve": {"nodes": [
            {"id": "t", "deps": [
                {"pkg": "s", "dep_kinds": [{"kind": null}]},
                {"pkg": "p", "dep_kinds": [{"kind": "dev"}]}
            ]},
            {"id": "x", "deps": [{"pkg": "p", "dep_kinds": [{"kind": null}]}]},
            {"id": "e", "deps": []}, {"id": "s", "deps": []}, {"id": "p", "deps": []}
        ]}
    }"#;

    #[test]
    fn only_what_the_binary_needs_is_a_part() {
        let metadata = parse(CARGO).expect("it is whole");
        assert_eq!(metadata.version, "0.1.0");
        let list: Value = serde_json::from_str(&render(&metadata).expect("it can be written"))
            .expect("it is JSON");
        let parts = serde_json::to_string_pretty(&list["components"]).expect("it is JSON");
        expect![[r#"
            [
              {
                "bom-ref": "tracer-ebpf@0.1.0",
                "licenses": [
                  {
                    "expression": "MIT"
                  }
                ],
                "name": "tracer-ebpf",
                "type": "library",
                "version": "0.1.0"
              },
              {
                "bom-ref": "serde@1.0.1",
                "licenses": [
                  {
                    "expression": "MIT OR Apache-2.0"
                  }
                ],
                "name": "serde",
                "purl": "pkg:cargo/serde@1.0.1",
                "type": "library",
                "version": "1.0.1"
              }
            ]"#]]
        .assert_eq(&parts);
        let same = render(&metadata).expect("it can be written");
        assert_eq!(same, render(&parse(CARGO).expect("it is whole")).expect("it can be written"));
    }

    #[test]
    fn what_is_not_cargos_is_refused() {
        assert!(parse("{}").is_err());
        assert!(parse("[").is_err());
    }
}
