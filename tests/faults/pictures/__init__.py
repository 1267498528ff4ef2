"""Pictures: those of docs/explanation, drawn from the coordinator's table and recorded runs."""
