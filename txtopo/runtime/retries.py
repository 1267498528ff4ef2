"""Retries: says of each attempt of a term that failed when it is made again.

The coordinator decides that, and neither waits nor writes a log. So what it asked for is looked at:
an attempt that was the current one and has a successor afterwards is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.coordinator import Coordinator
from txtopo.coordinator.protocol import Action, Backoff, Event, Failed, RunFailed
from txtopo.retries import warn_of_retry

Standing = Mapping[int, TransactionAttempt]
"""The current attempt of each txid."""


class Retries:
    """Counts the failures of each txid of one term. Used on the loop."""

    def __init__(self, topology: str, coordinator: Coordinator, config: Config) -> None:
        self._topology = topology
        self._coordinator = coordinator
        self._config = config
        self._failures: Counter[int] = Counter()
        self._due_s = 0.0

    def standing(self) -> Standing:
        """Return the current attempts; taken before an event, to be compared afterwards."""
        each = (*self._coordinator.transactions, self._coordinator.unplanned)
        return {transaction.txid: transaction.attempt for transaction in each}

    def of(self, event: Event, before: Standing, actions: Sequence[Action], now_s: float) -> None:
        """Say what is tried again because of an event.

        Args:
            event: The event.
            before: What stood before the coordinator had it.
            actions: What the coordinator asked for.
            now_s: The time.
        """
        for action in actions:
            if isinstance(action, Backoff):
                self._due_s = now_s + self._config.pause_s(action.failures)
        match event:
            case Failed():
                attempts: Sequence[TransactionAttempt] = (event.attempt,)
                component = event.failure.component
            case RunFailed():
                attempts, component = event.attempts, event.failure.component
            case _:
                return
        after = self.standing()
        again = [each for each in attempts if before.get(each.txid) == each]
        again = [each for each in again if each < after.get(each.txid, each)]
        for txid in [txid for txid in self._failures if txid < self._coordinator.current]:
            del self._failures[txid]
        if not again:
            return
        self._failures.update(each.txid for each in again)
        first, last = again[0], again[-1]
        warn_of_retry(
            f"txid {first.txid}" if first is last else f"the run of txids {first.txid}-{last.txid}",
            event.failure.error,
            topology=self._topology,
            failures=self._failures[first.txid],
            pause_s=max(0.0, self._due_s - now_s),
            txid=first.txid,
            attempt=first.attempt,
            epoch=first.epoch,
            component=component,
        )
