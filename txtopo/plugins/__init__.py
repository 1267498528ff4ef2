"""What authors of plug-ins import: stores and spouts."""
