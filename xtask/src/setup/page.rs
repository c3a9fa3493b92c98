//! A browser for the tests that look at `--report`'s page. Without one they say that they are left out, so that it
//! can't be had is no failure.

use super::browsers::BROWSERS;
use super::{Voice, apt, say};
use crate::process::{self, Privilege};

/// Debian's; Ubuntu has Chromium as a snap only.
const PACKAGE: &str = "chromium-headless-shell";

/// The browser that is there.
pub(crate) fn find() -> Option<&'static str> {
    BROWSERS.into_iter().find(|browser| process::find(browser).is_some())
}

/// Finds or installs one.
pub(crate) fn ensure(voice: Voice) {
    if let Some(browser) = find() {
        if voice == Voice::Full {
            say(&format!("{browser}: there"));
        }
        return;
    }
    let may_install =
        apt::exists() && Privilege::of_this_account().is_ok_and(|it| it != Privilege::None);
    if may_install {
        say(&format!("apt-get install {PACKAGE}"));
        if apt::install(&[PACKAGE]).is_ok() && find().is_some() {
            return;
        }
    }
    say("no Chromium, and none to install: the tests that look at pages are left out");
}
