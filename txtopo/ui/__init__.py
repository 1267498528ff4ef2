"""Views of a running topology for people."""
