//! The dashboard and the alert rules: every metric that they ask for is one that docs/cluster.md lists.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::{deploy, list, read, text};

/// The metrics in a text, by their prefix; `tracer_x_total{…}` is `tracer_x_total`.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("tracer_")).map(str::to_owned).collect()
}

fn listed() -> BTreeSet<String> {
    let page = deploy().join("../docs/cluster.md");
    let page = fs::read_to_string(page).expect("docs/cluster.md is there");
    let rows = page.lines().filter(|line| line.starts_with("| `tracer_"));
    rows.flat_map(|row| metrics(row.split('|').nth(1).unwrap_or_default())).collect()
}

fn expressions() -> Vec<String> {
    let [rules] = read(&deploy().join("prometheus/rules.yaml")).try_into().expect("one document");
    let groups = list(&rules, "/groups").iter();
    let alerts: Vec<&Value> = groups.flat_map(|group| list(group, "/rules")).collect();
    for alert in &alerts {
        let known = ["alert", "expr", "for", "labels", "annotations"];
        let fields = alert.as_object().expect("a mapping").keys();
        fields.for_each(|field| assert!(known.contains(&field.as_str()), "{field}"));
        assert!(!text(alert, "/annotations/summary").is_empty(), "{alert}");
    }
    let dashboard = fs::read_to_string(deploy().join("grafana/dashboard.json"));
    let dashboard: Value =
        serde_json::from_str(&dashboard.expect("the dashboard is there")).expect("it is JSON");
    let panels = list(&dashboard, "/panels").iter();
    let targets = panels.flat_map(|panel| list(panel, "/targets"));
    let queries = list(&dashboard, "/templating/list").iter();
    let queries = queries.map(|variable| text(variable, "/query/query").to_owned());
    let asked = alerts.into_iter().chain(targets).map(|one| text(one, "/expr").to_owned());
    asked.chain(queries).filter(|expression| !expression.is_empty()).collect()
}

#[test]
fn every_metric_that_is_asked_for_is_documented_and_the_other_way_round() {
    let asked: BTreeSet<String> = expressions().iter().flat_map(|one| metrics(one)).collect();
    assert_eq!(asked, listed());
}

#[test]
fn the_brackets_of_every_expression_are_closed() {
    let expressions = expressions();
    assert!(expressions.len() >= 11, "{expressions:?}");
    for expression in expressions {
        let mut open = Vec::new();
        for c in expression.chars() {
            match c {
                '(' => open.push(')'),
                '[' => open.push(']'),
                '{' => open.push('}'),
                ')' | ']' | '}' => assert_eq!(open.pop(), Some(c), "{expression}"),
                _ => {}
            }
        }
        assert!(open.is_empty(), "{expression}");
    }
}
