"""Whole topologies."""
