"""A znode has room for the metadata of 10,000 partitions; what it has no room for is refused."""

from __future__ import annotations

import pytest

from benchmarks.commits import topology
from tests.harness.polling import LIMIT_S
from txtopo import Config
from txtopo.ensemble.nodes import METADATA_BYTES_MAX
from txtopo.errors import BatchMetadataTooLarge

LOCAL = Config(carrier="local", zookeeper="memory")


def test_the_metadata_of_10_000_partitions_fits() -> None:
    """Positions and contents of all of them are stored with each txid."""
    with topology(txids=2, partitions=10_000).start(config=LOCAL) as run:
        run.process_all_available(LIMIT_S)

        assert run.last_progress is not None
        assert run.last_progress.txid == 2
        assert run.last_progress.rows == 10_000


def test_metadata_that_no_znode_has_room_for_is_refused_with_its_size_and_what_to_do() -> None:
    with (
        topology(txids=1, partitions=25_000).start(config=LOCAL) as run,
        pytest.raises(BatchMetadataTooLarge) as refused,
    ):
        run.await_termination(LIMIT_S)

    size = refused.value.facts["bytes"]
    assert isinstance(size, int)
    assert size > METADATA_BYTES_MAX
    assert str(refused.value) == (
        f"the metadata of txid 1 takes {size} bytes; a znode holds at most {METADATA_BYTES_MAX}; "
        "cut smaller batches, or store ranges instead of records"
    )
