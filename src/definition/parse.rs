//! Reads a definition from YAML or JSON text.
