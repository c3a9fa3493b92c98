//! `--report`, opened in a browser: what is drawn is what the JSON report says, the keyboard reaches every story,
//! nothing is asked of a network, and a phone need not scroll sideways.
//!
//! `TRACER_PAGE_TRACE=PATH` has the page of another trace looked at as well.

mod browser;
#[path = "../../../xtask/src/setup/browsers.rs"]
mod browsers;
#[path = "../support/generator.rs"]
mod generator;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use browser::{Browser, DESK, Look, PHONE};
use serde_json::Value;
use tracer::files::{Existing, TraceWriter};
use tracer::report::pictures::STORIES_OF_A_CAUSE;

/// A page, and the JSON report of the same run.
struct Page {
    folder: tempfile::TempDir,
    json: Value,
}

impl Page {
    /// Runs tracer with these arguments, for both forms at once.
    fn new(arguments: &[&str]) -> Page {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Command::new(env!("CARGO_BIN_EXE_tracer"))
            .args(arguments)
            .args(["--format", "json", "--report"])
            .arg(folder.path().join("page.html"))
            .output()
            .expect("tracer starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 3)), "{errors}");
        Page { folder, json: serde_json::from_slice(&output.stdout).expect("JSON") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("page.html")
    }

    fn failed(&self) -> &[Value] {
        self.json["failed"].as_array().expect("a list")
    }

    /// How many stories are told: of each cause the first.
    fn told(&self) -> u64 {
        let mut of_cause: BTreeMap<&str, u64> = BTreeMap::new();
        for failure in self.failed() {
            *of_cause.entry(failure["cause"].as_str().expect("a name")).or_default() += 1;
        }
        of_cause.into_values().map(|count| count.min(STORIES_OF_A_CAUSE as u64)).sum()
    }

    /// How many failures the JSON report has that are like this.
    fn count(&self, is_so: impl Fn(&Value) -> bool) -> u64 {
        self.failed().iter().filter(|failure| is_so(failure)).count() as u64
    }
}

fn is_late(failure: &Value) -> bool {
    failure["late"] == true
}

fn is_reused_port(failure: &Value) -> bool {
    ["stale-entry-reuse", "stale-replied-entry", "wrong-pod"]
        .iter()
        .any(|name| failure["cause"] == *name)
}

/// A browser, or a word that the test is left out.
fn browser(test: &str) -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        // Not eprintln!: the test harness would swallow it, and a test that is left out must be heard of.
        let _ = writeln!(
            io::stderr(),
            "left out: {test}: no Chromium (`cargo xtask setup` installs one)"
        );
    }
    browser
}

/// Everything that holds for every page.
fn look_at(browser: &mut Browser, page: &Page) {
    browser.open(&page.path(), DESK);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    what_is_drawn_is_what_the_report_says(browser, page);
    the_keyboard_reaches_every_story(browser);
    a_mark_leads_to_its_story(browser);
    it_suits_a_phone_a_dark_room_and_paper(browser, page);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn what_is_drawn_is_what_the_report_says(browser: &mut Browser, page: &Page) {
    let mut count = |selector: &str| {
        let expression = format!("document.querySelectorAll({selector:?}).length");
        browser.evaluate(&expression).as_u64().expect("a number")
    };
    let with_port = page.count(|failure| !failure["source"].is_null());
    assert_eq!(count(".map > .wide .mark"), with_port);
    assert_eq!(count(".map > .narrow .mark"), with_port);
    let late = page.count(|failure| is_late(failure) && !failure["source"].is_null());
    assert_eq!(count(".map > .wide .mark[data-late=true]"), late);
    let entries = page.json["entries"]["list"].as_array().expect("a list").len() as u64;
    assert_eq!(count(".map > .wide .bar"), entries);
    assert_eq!(
        count(".map > .wide .survivor"),
        page.json["survived"].as_array().unwrap().len() as u64
    );
    assert_eq!(count("details.story"), page.told());

    // The point of the picture: late failures of this cause sit on the bars, and no other failure does.
    let on_bars = page.count(|failure| is_late(failure) && is_reused_port(failure));
    assert_eq!(count(".map > .wide .mark[data-late=true][data-on-bar=true]"), on_bars);
    let others = page.count(|failure| !is_reused_port(failure));
    assert_eq!(count(".map > .wide .mark.rules, .map > .wide .mark.other"), others);
    assert_eq!(count(".map > .wide .mark.rules[data-on-bar=true]"), 0);

    // What is said of a mark is also where it is drawn.
    let drawn_on_bars = browser.evaluate(
        "(() => {
           const bars = [...document.querySelectorAll('.map > .wide .bar')].map((bar) => bar.getBBox());
           const marks = document.querySelectorAll('.map > .wide .mark[data-late=true]');
           return [...marks].filter((mark) => {
             const hit = mark.querySelector('.hit');
             const x = hit.cx.baseVal.value, y = hit.cy.baseVal.value;
             return bars.some((bar) => bar.x - 1 <= x && x <= bar.x + bar.width + 1
               && Math.abs(bar.y + bar.height / 2 - y) <= 1);
           }).length;
         })()",
    );
    assert!(drawn_on_bars.as_u64() >= Some(on_bars), "{drawn_on_bars} of {on_bars}");
}

/// Presses Tab from the top of the page to its end.
fn the_keyboard_reaches_every_story(browser: &mut Browser) {
    let stories = browser.evaluate("document.querySelectorAll('details.story').length");
    browser.evaluate("document.activeElement.blur()");
    let mut reached = BTreeSet::new();
    let mut marks = 0;
    loop {
        browser.press("Tab");
        let at = browser.evaluate(
            "(() => {
               const at = document.activeElement;
               if (at === document.body) return 'end';
               if (at.closest('a.mark')) return 'mark';
               return at.parentElement.classList.contains('story') ? at.parentElement.id : '';
             })()",
        );
        match at.as_str().expect("text") {
            "end" => break,
            "mark" => marks += 1,
            "" => {}
            story => {
                // Round again: the focus does not leave a page that is alone.
                if !reached.insert(story.to_owned()) {
                    break;
                }
            }
        }
    }
    assert_eq!(stories, reached.len());
    assert!(marks <= 2, "the picture is one stop, not one for each of its marks: {marks}");
}

/// Walks the picture by arrow keys, and opens a story.
fn a_mark_leads_to_its_story(browser: &mut Browser) {
    let marks = browser.evaluate("document.querySelectorAll('.map > .wide a.mark').length");
    let Some(marks) = marks.as_u64().filter(|marks| *marks > 0) else { return };
    browser.evaluate("document.querySelector('.map > .wide a.mark[tabindex=\"0\"]').focus()");
    browser.press("Home");
    let mut seen = BTreeSet::new();
    for _ in 0..marks {
        let at = browser.evaluate("document.activeElement.dataset.request");
        let read = browser.evaluate("document.querySelector('.readout').textContent");
        let request = at.as_str().expect("a mark has the focus").to_owned();
        assert!(read.as_str().unwrap().starts_with(&format!("request {request},")), "{read}");
        seen.insert(request);
        browser.press("ArrowRight");
    }
    assert_eq!(seen.len() as u64, marks);
    let last = browser.evaluate("document.activeElement.dataset.request");
    browser.press("Enter");
    // Going to a place on the page is done after the key.
    let opened = (0..200)
        .any(|_| browser.evaluate("document.activeElement.parentElement.open === true") == true);
    assert!(opened, "Enter opens no story");
    assert_eq!(browser.evaluate("document.activeElement.parentElement.dataset.request"), last);
    let seqs = "document.activeElement.parentElement.querySelectorAll('.seq').length";
    assert!(browser.evaluate(seqs).as_u64() > Some(1), "a story names its events");
}

fn it_suits_a_phone_a_dark_room_and_paper(browser: &mut Browser, page: &Page) {
    browser.open(&page.path(), PHONE);
    browser.evaluate("document.querySelectorAll('details').forEach((it) => { it.open = true; })");
    assert_eq!(browser.evaluate("innerWidth"), 360);
    let too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.evaluate(too_wide), false, "it scrolls sideways");
    let shown =
        "getComputedStyle(document.querySelector('.map > .narrow') ?? document.body).display";
    assert_eq!(browser.evaluate(shown), "block");
    assert_eq!(
        browser.evaluate("getComputedStyle(document.documentElement).scrollBehavior"),
        "auto"
    );
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.look(Look { dark: true, ..DESK });
    assert_eq!(browser.evaluate(ground), "rgb(20, 24, 29)");
    browser.look(Look { dark: true, print: true, ..DESK });
    assert_eq!(browser.evaluate(ground), "rgb(255, 255, 255)");
}

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes-1.36-readiness")
}

#[test]
fn the_page_of_a_real_rollout() {
    let Some(mut browser) = browser("the_page_of_a_real_rollout") else { return };
    let page = Page::new(&["replay", recording().to_str().unwrap()]);
    assert_eq!(page.count(|it| is_late(it) && is_reused_port(it)), 51);
    look_at(&mut browser, &page);
    let verdict = browser.evaluate("document.querySelector('h1').textContent");
    assert!(verdict.as_str().unwrap().starts_with("All 51 late failures"), "{verdict}");
}

#[test]
fn the_page_of_a_capture_alone() {
    let Some(mut browser) = browser("the_page_of_a_capture_alone") else { return };
    let page = Page::new(&["replay", recording().join("syn-rst.pcap.zst").to_str().unwrap()]);
    look_at(&mut browser, &page);
}

#[test]
fn the_page_of_a_generated_trace() {
    let Some(mut browser) = browser("the_page_of_a_generated_trace") else { return };
    let settings = generator::Settings {
        rollout_every: Duration::from_secs(120),
        ..generator::Settings::new(360_000, 7)
    };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("made.trace");
    let header = generator::header(&settings);
    let mut writer = TraceWriter::create(&trace, &header, Existing::Keep).unwrap();
    let truth = generator::generate(&settings, &mut |event| writer.append(event)).unwrap();
    writer.finish().unwrap();
    let page = Page::new(&["replay", trace.to_str().unwrap()]);
    assert_eq!(page.count(|it| is_late(it) && is_reused_port(it)), truth.late);
    look_at(&mut browser, &page);
}

#[test]
fn the_page_of_a_lab_run() {
    let Some(mut browser) = browser("the_page_of_a_lab_run") else { return };
    if !nix::unistd::geteuid().is_root() || !tracer::kernel::has_programs() {
        let _ = writeln!(
            io::stderr(),
            "left out: the_page_of_a_lab_run: needs root and a build with BPF programs"
        );
        return;
    }
    // As long as usual: with the kernel's own timer, and ports that come round as they do.
    let page = Page::new(&["lab"]);
    assert!(!page.failed().is_empty());
    look_at(&mut browser, &page);
}

#[test]
fn the_page_of_a_trace_that_was_asked_for() {
    let Some(trace) = std::env::var_os("TRACER_PAGE_TRACE") else { return };
    let Some(mut browser) = browser("the_page_of_a_trace_that_was_asked_for") else { return };
    let page = Page::new(&["replay", trace.to_str().unwrap()]);
    look_at(&mut browser, &page);
}

/// A cluster in which somebody has named a pod as an attacker would.
#[test]
fn a_pod_called_script_is_harmless_in_a_browser() {
    let Some(mut browser) = browser("a_pod_called_script_is_harmless_in_a_browser") else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(recording()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("watch-pods") {
            fs::copy(&path, folder.path().join(&name)).unwrap();
            continue;
        }
        let pods = zstd::decode_all(&fs::read(&path).unwrap()[..]).unwrap();
        let pods = String::from_utf8(pods).unwrap();
        let evil =
            r#"<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"#;
        let name = "web-8d8f7c6cd-p6pd2";
        assert!(pods.contains(name));
        fs::write(folder.path().join("watch-pods.json"), pods.replace(name, evil)).unwrap();
    }
    let page = Page::new(&["replay", folder.path().to_str().unwrap()]);
    assert!(page.json["pods"].to_string().contains("<script>"));
    browser.open(&page.path(), DESK);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.evaluate("document.title"), "tracer: supported");
    assert_eq!(browser.evaluate("document.querySelectorAll('script').length"), 1);
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);
    let said = browser.evaluate("document.querySelector('#path').textContent.includes('<script>')");
    assert_eq!(said, true, "the name is shown as it is");
}

/// What `tracer replay` of the recording says on standard error with these arguments more, and its status.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tracer"))
        .arg("replay")
        .arg(recording().join("syn-rst.pcap.zst"))
        .args(arguments)
        .output()
        .expect("tracer starts");
    assert!(output.stdout.is_empty());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_page_is_for_its_owner_and_replaces_nothing_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, "something else").unwrap();
    let name = page.to_str().unwrap();
    // Before anything is read, so there is no report on standard output either.
    let (status, said) = refused(&["--report", name]);
    assert_eq!(status, Some(2));
    let why = "exists; remove it, choose another name, or replace it with --force";
    assert_eq!(said, format!("tracer: {name} {why}\n"));
    assert_eq!(fs::read_to_string(&page).unwrap(), "something else");
    let (status, said) = refused(&["--report", "/nowhere/page.html"]);
    assert_eq!(status, Some(2));
    assert!(said.starts_with("tracer: cannot create /nowhere/page.html: "), "{said}");

    let capture = recording().join("syn-rst.pcap.zst");
    let output = Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["replay", "--force", "--report", name])
        .arg(capture)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "inconclusive, and said as ever");
    assert!(output.stdout.starts_with(b"INCONCLUSIVE"));
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let elsewhere = folder.path().join("other.html");
    fs::remove_file(&page).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["replay", "--report"])
        .arg(&elsewhere)
        .arg(recording().join("syn-rst.pcap.zst"))
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o600);
}
