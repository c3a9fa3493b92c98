//! Causes in the few groups that a picture can tell apart: by colour, and by shape for those who see no colours.

use maud::{Markup, html};

use super::super::words;
use super::svg::{Ink, SCALE};
use crate::verdict::Cause;

/// A group of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// The source port was reused, in any form.
    Reused,
    /// The rules still named a pod that was gone.
    Rules,
    /// Everything else.
    Other,
}

impl Family {
    pub(super) const ALL: [Family; 3] = [Family::Reused, Family::Rules, Family::Other];

    pub(super) fn of(cause: Cause) -> Family {
        match cause {
            cause if cause.is_reused_port() => Family::Reused,
            Cause::StaleRules => Family::Rules,
            _ => Family::Other,
        }
    }

    pub(super) fn ink(self) -> Ink {
        match self {
            Family::Reused => Ink::Reused,
            Family::Rules => Ink::Rules,
            Family::Other => Ink::Other,
        }
    }

    pub(super) fn class(self) -> &'static str {
        self.ink().class()
    }

    /// In words, for a legend.
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Reused => "failed: its port's old entry led to a gone pod",
            Family::Rules => "failed: the node's rules still named a gone pod",
            Family::Other => "failed: another cause",
        }
    }

    /// Its shape around a point.
    pub(super) fn shape(self, x: i32, y: i32) -> Markup {
        let r = 4 * SCALE;
        match self {
            Family::Reused => html! { circle cx=(x) cy=(y) r=(r) {} },
            Family::Rules => {
                let points = format!("{x},{} {},{} {},{}", y - r, x + r, y + r, x - r, y + r);
                html! { polygon points=(points) {} }
            }
            Family::Other => {
                let s = r - SCALE / 2;
                html! { rect x=(x - s) y=(y - s) width=(2 * s) height=(2 * s) {} }
            }
        }
    }
}

/// The shape of a connect that met a stale entry and did not fail.
pub(super) fn diamond(x: i32, y: i32) -> Markup {
    let r = 5 * SCALE;
    let points = format!("{x},{} {},{y} {x},{} {},{y}", y - r, x + r, y + r, x - r);
    html! { polygon points=(points) {} }
}

/// A cause by its name, with its sentence to unfold on a page.
pub(super) fn cause(cause: Cause) -> Markup {
    html! { code { (cause) } " " span.faint { (words::cause(cause)) } }
}
