//! The archive: an OCI image layout in a tar (github.com/opencontainers/image-spec, image-layout.md), with the
//! `manifest.json` beside it that `docker load` read before it knew that layout.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use oci_spec::image::{
    ConfigBuilder, DescriptorBuilder, Digest, HistoryBuilder, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, RootFsBuilder,
};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::layer::{self, Finished};

/// What the archive holds.
pub(super) struct Image {
    /// Name and tag.
    pub(super) tag: String,
    /// tracer's version.
    pub(super) version: String,
    /// As an SPDX expression.
    pub(super) licenses: String,
    /// As OCI names it.
    pub(super) architecture: String,
    /// The commit, if it is known.
    pub(super) revision: Option<String>,
    /// Unix time, in seconds.
    pub(super) made: u64,
    /// The file system.
    pub(super) layer: Finished,
}

/// A blob and how others speak of it.
struct Blob {
    kind: MediaType,
    bytes: Vec<u8>,
    digest: String,
}

impl Blob {
    fn new(kind: MediaType, bytes: Vec<u8>) -> Blob {
        let digest = layer::digest(&bytes);
        Blob { kind, bytes, digest }
    }

    fn descriptor(&self) -> Result<DescriptorBuilder> {
        let digest: Digest = self.digest.parse().context("a digest")?;
        let descriptor = DescriptorBuilder::default();
        Ok(descriptor.media_type(self.kind.clone()).digest(digest).size(self.bytes.len() as u64))
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

impl Image {
    /// Writes the archive and gives the manifest's digest, by which the image is known.
    pub(super) fn write(&self, path: &Path) -> Result<String> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let mut out = BufWriter::new(file);
        let digest = self.write_to(&mut out)?;
        out.flush().with_context(|| format!("writing {}", path.display()))?;
        Ok(digest)
    }

    fn write_to(&self, out: impl Write) -> Result<String> {
        let layer = Blob::new(MediaType::ImageLayerGzip, self.layer.bytes.clone());
        let config = Blob::new(MediaType::ImageConfig, stable(&self.config()?)?);
        let manifest = ImageManifestBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageManifest)
            .config(config.descriptor()?.build()?)
            .layers(vec![layer.descriptor()?.build()?])
            .build()?;
        let manifest = Blob::new(MediaType::ImageManifest, stable(&manifest)?);
        let (_, version) = self.tag.rsplit_once(':').unwrap_or((&self.tag, "latest"));
        let names = HashMap::from([
            // What containerd, and so kind, takes for the image's name.
            ("io.containerd.image.name".to_owned(), self.containerd_name()),
            ("org.opencontainers.image.ref.name".to_owned(), version.to_owned()),
        ]);
        let index = ImageIndexBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageIndex)
            .manifests(vec![manifest.descriptor()?.annotations(names).build()?])
            .build()?;
        let layout = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
        let docker = json!([{
            "Config": config.path(),
            "RepoTags": [self.tag],
            "Layers": [layer.path()],
        }]);

        let mut tar = Builder::new(out);
        let mut put = |path: &str, bytes: &[u8]| -> Result<()> {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(0o644);
            header.set_mtime(self.made);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes).with_context(|| format!("packing {path}"))
        };
        put("oci-layout", &stable(&layout)?)?;
        put("index.json", &stable(&index)?)?;
        put("manifest.json", &stable(&docker)?)?;
        for blob in [&manifest, &config, &layer] {
            put(&blob.path(), &blob.bytes)?;
        }
        tar.finish().context("packing the archive")?;
        Ok(manifest.digest)
    }

    fn config(&self) -> Result<impl serde::Serialize> {
        let created = self.created()?;
        let mut labels = HashMap::from(
            [
                ("title", "tracer"),
                (
                    "description",
                    "Why do requests still fail after a Kubernetes rollout has finished?",
                ),
                ("version", &self.version),
                ("licenses", &self.licenses),
                ("created", &created),
            ]
            .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.to_owned())),
        );
        if let Some(revision) = &self.revision {
            labels.insert("org.opencontainers.image.revision".to_owned(), revision.clone());
        }
        let config = ConfigBuilder::default()
            .entrypoint(vec!["/usr/bin/tracer".to_owned()])
            .env(vec!["PATH=/usr/bin".to_owned()])
            .working_dir("/tmp")
            .labels(labels)
            .build()?;
        let history = HistoryBuilder::default()
            .created(created.clone())
            .created_by("cargo xtask image")
            .build()?;
        let root_fs =
            RootFsBuilder::default().typ("layers").diff_ids(vec![self.layer.diff_id.clone()]);
        Ok(ImageConfigurationBuilder::default()
            .created(created.clone())
            .architecture(self.architecture.as_str())
            .os("linux")
            .config(config)
            .rootfs(root_fs.build()?)
            .history(vec![history])
            .build()?)
    }

    /// Without a registry in front of it a name means Docker's, and containerd wants it in full.
    fn containerd_name(&self) -> String {
        match self.tag.split_once('/') {
            Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => {
                self.tag.clone()
            }
            Some(_) => format!("docker.io/{}", self.tag),
            None => format!("docker.io/library/{}", self.tag),
        }
    }

    /// RFC 3339.
    fn created(&self) -> Result<String> {
        let seconds = i64::try_from(self.made).context("a time that no calendar has")?;
        Ok(Timestamp::from_second(seconds)?.to_string())
    }
}

/// JSON with sorted keys: the types of the specification hold their maps in no order.
fn stable(what: &impl serde::Serialize) -> Result<Vec<u8>> {
    let value: Value = serde_json::to_value(what)?;
    Ok(serde_json::to_vec(&value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use std::io::Read;

    fn image() -> Image {
        Image {
            tag: "tracer:0.1.0".to_owned(),
            version: "0.1.0".to_owned(),
            licenses: "MIT OR Apache-2.0".to_owned(),
            architecture: "amd64".to_owned(),
            revision: Some("0123abc".to_owned()),
            made: 1_700_000_000,
            layer: Finished { bytes: b"layer".to_vec(), diff_id: layer::digest(b"tar") },
        }
    }

    fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut tar = tar::Archive::new(bytes);
        let entries = tar.entries().expect("a tar").map(|entry| {
            let mut entry = entry.expect("a whole entry");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("it is in memory");
            (entry.path().expect("a path").display().to_string(), bytes)
        });
        entries.collect()
    }

    #[test]
    fn every_blob_is_where_its_digest_says_and_what_names_it_names_its_size() {
        let mut out = Vec::new();
        let manifest = image().write_to(&mut out).expect("memory can be written to");
        let entries = entries(&out);
        let read = |path: &str| -> Value {
            let (_, bytes) = entries.iter().find(|(name, _)| name == path).expect(path);
            serde_json::from_slice(bytes).expect("JSON")
        };
        let mut named = vec![read("index.json")["manifests"][0].clone()];
        let path =
            |digest: &Value| format!("blobs/{}", digest.as_str().expect("text").replace(':', "/"));
        assert_eq!(named[0]["digest"], manifest.as_str());
        let manifest = read(&path(&named[0]["digest"]));
        named.extend([manifest["config"].clone(), manifest["layers"][0].clone()]);
        for descriptor in named {
            let path = path(&descriptor["digest"]);
            let (_, bytes) = entries.iter().find(|(name, _)| *name == path).expect("the blob");
            assert_eq!(descriptor["digest"], layer::digest(bytes).as_str());
            assert_eq!(descriptor["size"], bytes.len());
        }
        let docker = read("manifest.json");
        assert_eq!(docker[0]["Config"], path(&manifest["config"]["digest"]).as_str());
        assert_eq!(docker[0]["Layers"][0], path(&manifest["layers"][0]["digest"]).as_str());
    }

    #[test]
    fn the_configuration_names_the_program_and_what_it_is() {
        let config = stable(&image().config().expect("it is whole")).expect("it is JSON");
        let config: Value = serde_json::from_slice(&config).expect("it is JSON");
        expect![[r#"
            {
              "architecture": "amd64",
              "config": {
                "Entrypoint": [
                  "/usr/bin/tracer"
                ],
                "Env": [
                  "PATH=/usr/bin"
                ],
                "Labels": {
                  "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
                  "org.opencontainers.image.description": "Why do requests still fail after a Kubernetes rollout has finished?",
                  "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                  "org.opencontainers.image.revision": "0123abc",
                  "org.opencontainers.image.title": "tracer",
                  "org.opencontainers.image.version": "0.1.0"
                },
                "WorkingDir": "/tmp"
              },
              "created": "2023-11-14T22:13:20Z",
              "history": [
                {
                  "created": "2023-11-14T22:13:20Z",
                  "created_by": "cargo xtask image"
                }
              ],
              "os": "linux",
              "rootfs": {
                "diff_ids": [
                  "sha256:90aebae315675cbf04612de4f7d5874850f48e0b8dd82becbeaa47ca93f5ebfb"
                ],
                "type": "layers"
              }
            }"#]].assert_eq(&serde_json::to_string_pretty(&config).expect("it is JSON"));
    }

    #[test]
    fn the_same_image_gives_the_same_bytes() {
        let bytes = || {
            let mut out = Vec::new();
            image().write_to(&mut out).expect("memory can be written to");
            out
        };
        assert_eq!(bytes(), bytes());
    }

    #[test]
    fn containerd_has_names_in_full() {
        let name = |tag: &str| Image { tag: tag.to_owned(), ..image() }.containerd_name();
        assert_eq!(name("tracer:1"), "docker.io/library/tracer:1");
        assert_eq!(name("team/tracer:1"), "docker.io/team/tracer:1");
        assert_eq!(name("registry.example/tracer:1"), "registry.example/tracer:1");
        assert_eq!(name("localhost/tracer:1"), "localhost/tracer:1");
    }
}
