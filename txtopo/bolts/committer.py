"""Committer: the marker of bolts that run in the commit phase."""

from __future__ import annotations


class Committer:
    """Marks a batch bolt that runs in the commit phase (Storm ``ICommitter``).

    The commit phase of a txid begins when every earlier txid is committed. ``prepare``,
    ``execute`` and ``finish_batch`` of a committer all run in it, as does every bolt below it, so
    heavy work belongs upstream. A committer reaches its states with ``context.state(name)``.
    """
