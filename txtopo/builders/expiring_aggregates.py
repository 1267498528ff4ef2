"""PersistentAggregate(expire_after=…): an aggregate whose values expire, as two bolts.

The store cannot combine such values, since it would have to know which of them have expired. So one
bolt combines rows where they are, as a ``PersistentAggregate`` does anyway, and a committer of one
task reads the values that it combines them with. That committer bears the id of the aggregate.

Rules
-----
1. A value is stored with ``seen``, the planned time of the last txid that had a row of its key.
2. In T a value counts as absent if its ``seen + expire_after`` is at or before the planned time of
   T. No row of T or later is combined with it, so it makes no difference when it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from txtopo.attempt import TransactionAttempt
from txtopo.bolts.bolt import ArrowBolt, Committer
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import TopologyError
from txtopo.groupings import GlobalGrouping
from txtopo.stages.combining import Aggregating, BatchPartials, partial_fields
from txtopo.state.lifetimes import OTHER_TIMES, SEEN, Lifetime, with_seen
from txtopo.topology.bolt_kinds import ARROW_BOLT
from txtopo.topology.checks import with_own_state
from txtopo.topology.component import Component, Subscription, check_id, checked_streams
from txtopo.traits import Meaning, Traits
from txtopo.tuples import DEFAULT_STREAM, Fields, Stream


class ExpiringAggregate(ArrowBolt, Committer):
    """Keeps the aggregates of a ``PersistentAggregate`` whose values expire by planned time.

    Delivery: each row counts exactly once in the value of its key, as long as that value lives.

    Args:
        id: Its id, which is also the name of its state.
        aggregates: Key and aggregates.
        lifetime: How long a value counts without a row.
        inputs: The fields of the rows that are aggregated.
    """

    writes_nowhere_else = True
    needs_planned_time = True
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(
        self, id: str, aggregates: PersistentAggregate, lifetime: Lifetime, inputs: Fields
    ) -> None:
        self.output_fields = None
        self._id, self._lifetime = id, lifetime
        self._fields = partial_fields(aggregates, inputs)
        self._keys = list(aggregates.key_fields(inputs).names)
        self._applies = Aggregating(aggregates, inputs)

    @property
    def traits(self) -> Traits:
        """The traits of the bolt, which say that its values expire by planned time."""
        return replace(
            super().traits,
            operators=(str(self._lifetime),),
            rows=Meaning("values that expire by planned time", OTHER_TIMES),
            expires=True,
        )

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        self._state, self._attempt = context.state(self._id), attempt
        self._now = context.planned_time
        self._batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Add partial aggregates to the batch."""
        self._batches.append(batch)

    def finish_batch(self) -> None:
        """Combine the partial aggregates with the values that have not expired."""
        rows = pa.Table.from_batches(self._batches, self._fields.arrow_schema())
        changes, (seen,) = self._applies.changed(rows), SEEN.arrow_schema()
        with self._state.transaction(self._attempt) as values:
            stored = values.get_columns(changes.select(self._keys))
            before = self._lifetime.live(stored, self._now).drop_columns([seen.name])
            after = self._applies.combined(before, changes)
            at = pa.repeat(pa.scalar(self._now, seen.type), after.num_rows)
            values.put_columns(after.append_column(seen, at))
            values.expire(self._lifetime.bound(self._now))


def with_expiring_aggregates(declared: Sequence[Component]) -> list[Component]:
    """Return components with two bolts for each aggregate whose values expire.

    Args:
        declared: The components, which have been checked.

    Raises:
        TopologyError: A name is taken.
    """
    components = {each.id: each for each in declared}
    found: list[Component] = []
    for one in declared:
        bolt = one.prototype
        if isinstance(bolt, PersistentAggregate) and bolt.lifetime is not None:
            found += _as_two(one, bolt, bolt.lifetime, components)
        else:
            found.append(one)
    return found


def _as_two(
    one: Component,
    bolt: PersistentAggregate,
    lifetime: Lifetime,
    components: Mapping[str, Component],
) -> list[Component]:
    above = check_id("bolt", f"{one.id}.partials")
    if above in components:
        raise TopologyError(
            f"component id {above!r} is reserved for the partial aggregates of {one.id!r}, whose "
            "values expire; rename your component",
            component=above,
        )
    first = one.subscriptions[0]
    inputs = components[first.source].streams[first.stream].fields
    (state,) = with_own_state(one, components).states.values()
    partials = BatchPartials(bolt, inputs)
    committer = ExpiringAggregate(one.id, bolt, lifetime, inputs)
    return [
        replace(
            one,
            id=above,
            kind=ARROW_BOLT,
            prototype=partials,
            streams=dict(checked_streams(above, partials)),
            committer=False,
        ),
        Component(
            one.id,
            ARROW_BOLT,
            committer,
            1,
            dict(checked_streams(one.id, committer)),
            (Subscription(above, DEFAULT_STREAM, GlobalGrouping()),),
            committer=True,
            states={one.id: with_seen(state)},
        ),
    ]
