"""YAML: topologies that are written in a file."""
