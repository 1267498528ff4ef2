"""Topologies on a private Spark cluster, whose machines die, hang, come and go."""
