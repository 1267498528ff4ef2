"""Whole topologies, and what earlier versions have stored."""
