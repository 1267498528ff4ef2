"""Many keys: in a batch, in an undo, and read back one and all."""

from __future__ import annotations

import pyarrow as pa

from txtopo.state import Merges, State
from txtopo.testing.conformance.assertions import Rule, proves
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.subject import Drive, Subject


class SizeSuite(Subject):
    """``keys_max`` keys in two batches; the second one changes, and is replayed without them."""

    @proves(Rule.UNDO)
    def test_many_keys_are_written_undone_and_read(self, counts: State, drive: Drive) -> None:
        self.write_and_undo(drive(counts), self.keys_max)

    def write_and_undo(self, store: StateDriver, keys: int) -> None:
        """Write *keys* keys; change the upper half of them and as many new ones; take it back."""
        half = keys // 2
        old, changed = range(keys), range(half, keys + half)

        _merge(store, 1, old)
        _merge(store, 2, changed)
        contents = store.contents()
        assert len(contents) == keys + half
        assert [contents[_key(n)] for n in (0, half, keys, keys + half - 1)] == [1, 2, 1, 1]
        assert sum(contents.values()) == 2 * keys
        _merge(store, 2, range(1), attempt=1)
        contents = store.contents()
        assert len(contents) == keys
        assert sum(contents.values()) == keys + 1
        with store.state.reader() as reader:
            assert [reader.get(_key(n)) for n in (0, half, keys - 1, keys)] == [2, 1, 1, None]


class MillionKeysSuite(SizeSuite):
    """A million keys; beside :class:`StateBackendSuite`, since it takes minutes in some stores."""

    keys_max = 1_000_000


def _key(number: int) -> str:
    return f"key {number:09}"


def _merge(store: StateDriver, txid: int, keys: range, attempt: int = 0) -> None:
    schema = pa.schema([*store.state.key.arrow_schema(), *store.state.value.arrow_schema()])
    columns = [[_key(number) for number in keys], [1] * len(keys)]
    store.commit(txid, Merges(pa.table(columns, schema=schema)), attempt)
