//! Whether JSON keeps to a schema of docs/. For any test:
//!
//! ```ignore
//! #[path = "support/schema.rs"]
//! mod schema;
//! static REPORT: LazyLock<Schema> =
//!     LazyLock::new(|| Schema::new(include_str!("../../docs/report.schema.json")));
//! REPORT.check(&json).unwrap_or_else(|errors| panic!("{errors:#?}"));
//! ```

use jsonschema::Validator;

/// A schema that is one.
pub(crate) struct Schema(Validator);

impl Schema {
    /// Reads it.
    pub(crate) fn new(text: &str) -> Schema {
        let schema = serde_json::from_str(text).expect("the schema is JSON");
        jsonschema::draft202012::meta::validate(&schema).expect("the schema is one of 2020-12");
        Schema(jsonschema::draft202012::new(&schema).expect("the schema holds together"))
    }

    /// Checks a JSON text; each thing that is wrong with it, with its place.
    pub(crate) fn check(&self, json: &str) -> Result<(), Vec<String>> {
        let value = serde_json::from_str(json).map_err(|error| vec![error.to_string()])?;
        let errors: Vec<String> = self
            .0
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}
