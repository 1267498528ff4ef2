"""StreamSpout: stands where the micro-batches of a Structured Streaming query come in."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.tuples import Fields, Stream


class StreamSpout:
    """The spout of a topology that a Structured Streaming query drives; it reads nothing itself.

    Delivery: that of the query. Spark notes in its checkpoint what a micro-batch consists of before
    it is computed, so a replay has the same input; when that note is lost as well, the batch may be
    cut anew, and then only opaque states are right. It is read where the query reads.

    A topology with it is not started: give ``topology.foreach_batch()`` to
    ``stream.writeStream.foreachBatch``. Its tasks are Spark partitions of the micro-batch, as many
    as there are slots.

    Args:
        fields: The columns of the stream that the topology uses, by name; others are left out.

    Example:
        >>> from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
        >>> from txtopo.spouts import StreamSpout
        >>> from txtopo.state import Count, open_state
        >>> stream = StreamSpout(Fields("word string"))
        >>> builder = TransactionalTopologyBuilder("words", "stream", stream)
        >>> count = PersistentAggregate(open_state("sqlite:///words.db"), "word", Count())
        >>> _ = builder.set_bolt("count", count).fields_grouping("stream", "word")
        >>> write = builder.build_topology().foreach_batch()
        >>> # query = words.writeStream.foreachBatch(write).option("checkpointLocation", …).start()
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(self, fields: Fields) -> None:
        self.output_fields = fields
