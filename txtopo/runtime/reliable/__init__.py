"""The shell of at-least-once topologies: the driver with its spouts and ackers, and what carries
envelopes to slots that live long."""
