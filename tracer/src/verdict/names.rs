//! Names: requests that got no address, or got it too late.

use std::time::Duration;

use crate::correlate::Failure;
use crate::model::NameError;

use super::Cause;
use super::judge::{Bench, Why, seconds};

/// A connect that has less time than this does not even send its SYN again (`TCP_TIMEOUT_INIT`).
const TOO_SHORT: Duration = Duration::from_secs(1);

impl Bench<'_> {
    /// Whether a request's name did not resolve. The client's word: no packet of DNS is recorded.
    pub(super) fn has_no_name(&self, failure: &Failure) -> bool {
        failure.ended.resolution.is_some_and(|resolution| resolution.failed.is_some())
    }

    pub(super) fn no_name(&self, failure: &Failure) -> Why {
        let resolution = failure.ended.resolution;
        let took = resolution.map_or(failure.ended.total, |resolution| resolution.took);
        let what = match resolution.and_then(|resolution| resolution.failed) {
            Some(NameError::Unanswered) | None => "no DNS server answered",
            Some(NameError::NoSuchName) => "there is no such name",
            Some(NameError::NoAddress) => "it has no address",
            Some(NameError::ServerFailed) => "the DNS server failed",
            Some(NameError::Unreachable) => "no DNS server could be reached",
        };
        Why::new(Cause::Dns, format!("its name did not resolve within {}: {what}", seconds(took)))
    }

    /// What is said of a live pod that did not answer does not hold where the name left it no time to.
    pub(super) fn unless_slow_name(&self, failure: &Failure, why: Why) -> Why {
        let Some(resolution) = failure.ended.resolution else { return why };
        let left = failure.ended.total.saturating_sub(resolution.took);
        let is_slowness = matches!(why.cause, Cause::PodUnanswered | Cause::SlowAnswer);
        if !is_slowness || resolution.took < TOO_SHORT || left >= TOO_SHORT {
            return why;
        }
        let took = seconds(resolution.took);
        Why::new(
            Cause::Dns,
            format!("its name took {took} to resolve, which left {} for the rest", seconds(left)),
        )
    }
}
