//! Events to a timeline: attempts, entries, pods, requests, and which belong together. Pure and unable to fail.
