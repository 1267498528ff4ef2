"""ForeachBatch: a Structured Streaming query drives a topology, one micro-batch a txid.

Theory of operation
-------------------
Spark writes into its checkpoint what batch *b* consists of, calls ``foreachBatch``, and then notes
that *b* is done. If it dies in between it calls again with the same *b*. So *b* + 1 is a txid, and
the states' ledgers say whether it is in them. There is no coordinator, window or ZooKeeper: the
query calls one batch at a time.

Each start of the query claims an epoch above all that the ledgers hold, in all states, before it
writes anything: whatever an earlier start still has on its way is refused. The query's id, which
lives in its checkpoint, is part of the ledgers' topology id: another checkpoint would number other
batches from 0, so it is another topology. It also stands where a coordinator's ledgers name their
ensemble, since nobody else counts the epochs.

A query may continue another one: ``continues`` names it, and ``after_txid`` says where it ended.
The first call then writes the new query's id into each ledger in place of the old one, by
compare-and-set, if the ledger holds exactly *after_txid*. From then on the old query is refused,
and so is every other that says it continues the old one: only the query that continued last may
write. Ledgers of schema 1 kept the old id although another query went on. So a ledger of schema 1
that names the old id may belong to either; whichever of the two comes first has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from txtopo.config import Config
from txtopo.errors import ConfigError, TopologyError
from txtopo.runtime.scheduler import Scheduler, ThreadScheduler
from txtopo.runtime.start import check_config
from txtopo.runtime.stream_run import StreamRun
from txtopo.runtime.streaming_query import NEEDS_CLASSIC, StreamingQueryFacts
from txtopo.topology.component import Role
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ForeachBatch:
    """What ``topology.foreach_batch()`` returns: a function of (micro-batch, batch id).

    Who calls it: Spark, in the driver, on the thread of the query, one batch at a time. What a bolt
    or a store raises ends the query with it; start the query again, and the batch comes again.
    It may be given to several starts of a query, and to several queries; each has a run of its own.

    Args:
        graph: A topology with a ``StreamSpout``.
        config: Its carrier and slots are used.
        continues: Id of the query whose ledgers this one takes over.
        after_txid: The txid that they held then.
        scheduler: Where durable steps are marked; one that does nothing by default.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        continues: str | None = None,
        after_txid: int = 0,
        scheduler: Scheduler | None = None,
    ) -> None:
        spout = graph.spout
        if spout.role is not Role.STREAM_SPOUT:
            raise TopologyError(
                f"topology {graph.id!r} has a spout that reads by itself; got "
                f"{spout.role.value} {spout.id!r}; expected StreamSpout(fields), which a query "
                "drives; or use start()",
                component=spout.id,
            )
        check_config(config)
        if config.carrier in ("rdd", "resident"):
            raise ConfigError(
                f"a micro-batch is a DataFrame; got carrier {config.carrier!r}; expected 'auto', "
                "'dataframe' or 'local'"
            )
        if continues is not None and not (isinstance(continues, str) and continues):
            raise ConfigError(
                f"continues is wrong; got {continues!r}; expected the id of the query that is "
                "continued, or None"
            )
        if type(after_txid) is not int or after_txid < 0 or (after_txid and continues is None):
            raise ConfigError(
                f"after_txid is wrong; got {after_txid!r} with continues={continues!r}; expected "
                "the txid that the ledgers of the query that is continued hold"
            )
        self._graph = graph
        self._config = config
        self._continues = continues
        self._after_txid = after_txid
        self._scheduler = scheduler or ThreadScheduler(f"txtopo-{graph.id}")
        # By query, since calls may overlap: of two queries, or with what is left of a stopped one.
        self._runs: dict[StreamingQueryFacts, StreamRun] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process and commit one micro-batch.

        Raises:
            ConfigError: The query cannot be used, or executors lack a module; mend that.
            TopologyError: The stream lacks a column; mend the query or the spout's fields.
            PromiseError: Checkpoint and stores do not fit together; a person decides.
            InfrastructureError: A store or Spark failed; start the query again.
            Exception: What a bolt raised.
        """
        query = StreamingQueryFacts.of(frame.sparkSession)
        txid = batch_id + 1 + self._after_txid
        run = self._runs.get(query)
        try:
            if run is None:
                self._close([each for each in self._runs if each.id == query.id])
                run = StreamRun(self._graph, self._config, query.id, frame, self._scheduler)
                self._runs[query] = run
                run.claim(txid, continues=self._continues, after_txid=self._after_txid)
            run.commit(frame, txid)
        except BaseException:
            # Another call claims anew, and reads the ledgers again.
            if run is not None and self._runs.get(query) is run:
                self._close([query])
            raise

    def __reduce__(self) -> NoReturn:
        """Refuse to travel, as Spark Connect asks it to."""
        raise ConfigError(f"foreach_batch {NEEDS_CLASSIC}")

    def close(self) -> None:
        """Close the stores; a call after it opens them again."""
        self._close(list(self._runs))

    def _close(self, queries: Sequence[StreamingQueryFacts]) -> None:
        for query in queries:
            run = self._runs.pop(query, None)
            if run is not None:
                run.close()
