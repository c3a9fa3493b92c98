//! The built-in cluster in network namespaces.
