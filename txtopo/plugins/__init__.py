"""What authors of plug-ins import: stores, spouts and ensembles."""
