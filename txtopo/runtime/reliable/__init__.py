"""The runtime of at-least-once topologies: the driver with its spouts and ackers, and its slots."""
