//! The load generator and the demo app.
