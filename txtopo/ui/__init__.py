"""What shows a run to people."""
