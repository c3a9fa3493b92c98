//! The report as JSON, schema 1. docs/report.schema.json describes every field.

use super::Report;

/// Pretty JSON with a newline at its end. The same report gives the same bytes.
pub fn render(report: &Report) -> String {
    let mut json = serde_json::to_string_pretty(report)
        .expect("a report has only plain values and maps keyed by names");
    json.push('\n');
    json
}

#[cfg(test)]
#[path = "../../tests/support/schema.rs"]
pub(crate) mod schema;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::{Value, json};

    use super::super::fixture;
    use super::render;
    use super::schema::Schema;
    use crate::model::Symptom;
    use crate::verdict::{Cause, HypothesisName, VerdictOutcome};

    static REPORT: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(include_str!("../../../docs/report.schema.json")));

    #[test]
    fn every_report_keeps_to_its_schema() {
        for report in fixture::all() {
            REPORT.check(&render(&report)).unwrap_or_else(|errors| panic!("{errors:#?}"));
        }
    }

    #[test]
    fn every_name_of_an_outcome_a_cause_and_a_symptom_is_in_the_schema() {
        let mut report = fixture::supported();
        let all = [
            VerdictOutcome::Supported,
            VerdictOutcome::Refuted,
            VerdictOutcome::NotObserved,
            VerdictOutcome::Inconclusive,
        ];
        let names =
            [HypothesisName::ReusedSourcePort, HypothesisName::StaleRules, HypothesisName::Dns];
        report.failures.late = Cause::ALL.into_iter().map(|cause| (cause, 1)).collect();
        report.symptoms.early = Symptom::ALL.into_iter().map(|symptom| (symptom, 1)).collect();
        let row = report.failed[0].clone();
        report.failed = Cause::ALL
            .into_iter()
            .zip(Symptom::ALL.into_iter().cycle())
            .map(|(cause, symptom)| super::super::FailureRow { cause, symptom, ..row.clone() })
            .collect();
        for (outcome, name) in all.into_iter().zip(names.into_iter().cycle()) {
            report.hypothesis.outcome = outcome;
            report.rivals[0].name = name;
            REPORT.check(&render(&report)).unwrap_or_else(|errors| panic!("{errors:#?}"));
        }
    }

    /// Every object of the report that has fields of its own, by its path; not the maps of counts.
    fn objects(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let is_counts = ["/failures", "/symptoms"]
                    .iter()
                    .any(|of| path == format!("{of}/early") || path == format!("{of}/late"));
                let is_map = is_counts || path == "/counters" || path == "/origin/sysctls";
                if !is_map {
                    found.push(path.to_owned());
                }
                for (name, value) in fields {
                    objects(value, &format!("{path}/{name}"), found);
                }
            }
            Value::Array(rows) => {
                for (i, row) in rows.iter().enumerate() {
                    objects(row, &format!("{path}/{i}"), found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn a_missing_field_and_an_unknown_one_are_refused_everywhere() {
        let mut report = fixture::supported();
        report.failed.truncate(1);
        let full: Value = serde_json::from_str(&render(&report)).expect("JSON");
        let mut paths = Vec::new();
        objects(&full, "", &mut paths);
        assert!(paths.len() > 30, "{paths:?}");
        for path in paths {
            let mut more = full.clone();
            let object = |value: &mut Value| {
                value
                    .pointer_mut(&path)
                    .and_then(Value::as_object_mut)
                    .expect("a path just found")
                    .clone()
            };
            let fields = object(&mut more);
            more.pointer_mut(&path).expect("a path just found")["surprise"] = json!(1);
            assert!(REPORT.check(&more.to_string()).is_err(), "{path}: an unknown field passes");
            for name in fields.keys() {
                let mut less = full.clone();
                less.pointer_mut(&path)
                    .and_then(Value::as_object_mut)
                    .expect("a path just found")
                    .remove(name);
                assert!(REPORT.check(&less.to_string()).is_err(), "{path}/{name}: may be missing");
            }
        }
    }

    #[test]
    fn the_page_for_readers_names_every_field_cause_symptom_and_outcome() {
        let page = include_str!("../../../docs/how-to-read-a-verdict.md");
        let report: Value = serde_json::from_str(&render(&fixture::supported())).expect("JSON");
        let fields = report.as_object().expect("an object").keys().cloned();
        let causes = Cause::ALL.into_iter().map(|cause| cause.name().to_owned());
        let symptoms = Symptom::ALL.into_iter().map(|symptom| symptom.name().to_owned());
        let outcomes = ["supported", "refuted", "not-observed", "inconclusive"].map(str::to_owned);
        for name in fields.chain(causes).chain(symptoms).chain(outcomes) {
            assert!(page.contains(&format!("`{name}`")), "`{name}` is not explained");
        }
    }

    #[test]
    fn the_same_report_gives_the_same_bytes_with_a_newline_at_the_end() {
        let json = render(&fixture::supported());
        assert_eq!(json, render(&fixture::supported()));
        assert!(json.ends_with("}\n") && !json.ends_with("\n\n"));
        assert!(json.starts_with("{\n  \"schema\": 1,\n  \"hypothesis\": {"));
    }
}
