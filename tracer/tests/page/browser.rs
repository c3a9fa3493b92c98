//! A headless Chromium, driven by its DevTools protocol over a pipe: messages are JSON, each ends with a NUL.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::browsers::BROWSERS;

/// How long any single step may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// What it told that was no answer.
    pub(crate) told: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// How the page is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
    pub(crate) print: bool,
    pub(crate) still: bool,
}

pub(crate) const DESK: Look =
    Look { width: 1200, height: 900, dark: false, print: false, still: true };
pub(crate) const PHONE: Look = Look { width: 360, height: 740, ..DESK };

impl Browser {
    /// Starts it; none if this machine has none.
    pub(crate) fn start() -> Option<Browser> {
        let path = std::env::var_os("PATH")?;
        let program = BROWSERS
            .iter()
            .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
            .find(|program| program.is_file())?;
        let profile = tempfile::tempdir().expect("a folder");
        // The protocol is on the descriptors 3 and 4, which a shell can lay on a child's standard ones.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh"])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let commands = child.stdin.take().expect("it was piped");
        let output = child.stdout.take().expect("it was piped");
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("the protocol is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let told = Vec::new();
        let mut browser =
            Browser { child, commands, messages, session: None, last: 0, told, _profile: profile };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.ask(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, page: &Path, look: Look) {
        self.look(look);
        self.told.clear();
        let url = format!("file://{}", page.display());
        let navigated = self.ask("Page.navigate", json!({ "url": url }));
        assert_eq!(navigated.get("errorText"), None, "{navigated}");
        while !self.told.iter().any(|told| told["method"] == "Page.loadEventFired") {
            let told = self.next();
            self.told.push(told);
        }
    }

    /// Changes the window and what the page is told of it.
    pub(crate) fn look(&mut self, look: Look) {
        let Look { width, height, .. } = look;
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
        let scheme = if look.dark { "dark" } else { "light" };
        let motion = if look.still { "reduce" } else { "no-preference" };
        let media = json!({
            "media": if look.print { "print" } else { "screen" },
            "features": [
                feature("prefers-color-scheme", scheme),
                feature("prefers-reduced-motion", motion),
            ],
        });
        self.ask("Emulation.setEmulatedMedia", media);
    }

    /// The value of an expression on the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", parameters);
        assert_eq!(answer.get("exceptionDetails"), None, "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Presses a key that has a name.
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "End" => 35,
            "Home" => 36,
            "ArrowRight" => 39,
            other => panic!("no code is known for {other}"),
        };
        let mut event =
            json!({ "type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        self.ask("Input.dispatchKeyEvent", event.clone());
        if key == "Enter" {
            event["type"] = json!("char");
            event["text"] = json!("\r");
            self.ask("Input.dispatchKeyEvent", event.clone());
        }
        event["type"] = json!("keyUp");
        self.ask("Input.dispatchKeyEvent", event);
    }

    /// Waits for all that the page does of itself, and gives what went wrong on it and what it asked of a
    /// network: errors, warnings, requests.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.evaluate("document.readyState");
        let asked = |told: &Value| told["params"]["request"]["url"].as_str().map(str::to_owned);
        let mut complaints = Vec::new();
        let mut opened = 0;
        for told in &self.told {
            match told["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded" => {
                    complaints.push(told["params"].to_string());
                }
                "Network.requestWillBeSent" => {
                    let url = asked(told).unwrap_or_default();
                    opened += 1;
                    // The page itself is the first and the only one.
                    if opened > 1 || !url.starts_with("file://") {
                        complaints.push(format!("it asked for {url}"));
                    }
                }
                _ => {}
            }
        }
        complaints
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("the browser listens");
        loop {
            let message = self.next();
            if message["id"] == self.last {
                assert_eq!(message.get("error"), None, "{method}: {message}");
                return message["result"].clone();
            }
            self.told.push(message);
        }
    }

    fn next(&mut self) -> Value {
        self.messages.recv_timeout(PATIENCE).expect("the browser answers in time")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end with it; an error here says that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
