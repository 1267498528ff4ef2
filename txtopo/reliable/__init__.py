"""The runtime of at-least-once topologies: the driver, and its slots with spouts and ackers."""
