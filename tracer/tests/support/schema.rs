//! Whether a JSON report keeps to docs/report.schema.json. For any test:
//!
//! ```ignore
//! #[path = "support/schema.rs"]
//! mod schema;
//! schema::check(&json).unwrap_or_else(|errors| panic!("{errors:#?}"));
//! ```

use std::sync::LazyLock;

use jsonschema::Validator;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let text = include_str!("../../../docs/report.schema.json");
    let schema = serde_json::from_str(text).expect("the schema is JSON");
    jsonschema::draft202012::meta::validate(&schema).expect("the schema is one of 2020-12");
    jsonschema::draft202012::new(&schema).expect("the schema holds together")
});

/// Checks a report's JSON text; each thing that is wrong with it, with its place.
pub(crate) fn check(json: &str) -> Result<(), Vec<String>> {
    let report = serde_json::from_str(json).map_err(|error| vec![error.to_string()])?;
    let errors: Vec<String> = SCHEMA
        .iter_errors(&report)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
