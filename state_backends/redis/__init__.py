"""States in Redis, through redis-py; ``pip install txtopo[redis]``.

``redis://…`` (``rediss://…`` with TLS) is an atomic backend. A state is one hash; its ledger and
the list of the keys that its last txid wrote are separate keys, in the same slot of a cluster.

Delivery: exactly once, fenced, and atomic for readers: each write is ``WATCH`` on the ledger and
one ``MULTI``. It is as durable as the server: ``appendonly yes`` and ``appendfsync always`` are
required, and eviction is refused. Replicas lag behind, so a failover may lose the last commits;
then the run stops, because the state is behind ZooKeeper.

``redis-map://…`` (``rediss-map://…``) is a backing map of two methods: strings by key. Delivery:
exactly once under one live coordinator, without a fence; readers may see half a batch. The server
needs the same settings.
"""

from __future__ import annotations

from state_backends.redis.factory import open_backend, open_map_backend

__all__ = ["open_backend", "open_map_backend"]
