"""SpoutSuite: what every spout has to do, as a class to be subclassed.

All batches go through the framework's own planning, tasks, envelopes and judgement, without Spark;
what is kept between two starts is text, as ZooKeeper keeps it. The rules, and when they hold:

* *transactional*: each attempt of a txid has the same tuples, in this process and after a restart;
* *chain*: in each partition a batch starts where the one before ended, also within a run;
* *union*: the batches together are the input, each record once;
* *restart*: it goes on from the stored metadata and from nothing else;
* *down*: a partition that is down keeps its position;
* *JSON*: metadata comes back from JSON as it was, and fits into a znode;
* *added*, *gone*: partitions come and go; a replay never has a partition that was added later;
* *lost*: unread data that has gone raises ``SourceDataLost``, or is recorded where that was chosen;
* *tasks*: the tasks of the spout share a batch, each record in one of them;
* *lag*: where it is known, it is what is left.

What no rule asks for: that a batch has a certain size, that records of different partitions have an
order, that an opaque replay is another batch.
"""

from __future__ import annotations

from txtopo.testing.conformance.spout_batches_suite import SpoutBatchesSuite
from txtopo.testing.conformance.spout_change_suite import SpoutChangeSuite
from txtopo.testing.conformance.spout_restart_suite import SpoutRestartSuite


class SpoutSuite(SpoutBatchesSuite, SpoutRestartSuite, SpoutChangeSuite):
    """Shows that a spout keeps the rules of its kind.

    Works for ``TransactionalSpout``, ``PartitionedTransactionalSpout`` and
    ``OpaquePartitionedTransactionalSpout`` alike. Subclass it in your tests and give it a fixture
    ``source``: a :class:`~txtopo.testing.conformance.SpoutSource` of your own over an empty source.
    It takes a second for a source in memory and needs no Spark.

    Example:
        >>> import pytest
        >>> from txtopo import Fields
        >>> from txtopo.spouts import MemoryTransactionalSpout
        >>> from txtopo.testing.conformance import SpoutSource, SpoutSuite
        >>> class Lists(SpoutSource):
        ...     live = False  # it is made anew to see what was appended
        ...     def __init__(self):
        ...         self.rows = {0: [], 1: []}
        ...     def spout(self):
        ...         return MemoryTransactionalSpout(self.rows, Fields("partition int, n int"), 2)
        ...     def append(self, partition, count):
        ...         rows, start = self.rows[partition], len(self.rows[partition])
        ...         rows += [(partition, n) for n in range(start, start + count)]
        ...         return rows[start:]
        >>> class TestLists(SpoutSuite):
        ...     @pytest.fixture
        ...     def source(self):
        ...         return Lists()
    """
