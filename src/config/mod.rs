//! Operator configuration.
