//! The one way of the data: stream, recording, correlation.
