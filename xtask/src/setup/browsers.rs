//! The names that distributions give Chromium, the smallest first. Shared by the set-up and the tests that look at
//! pages.

/// Any of them does.
pub(crate) const BROWSERS: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];
