"""Every topology leaves equal states on every carrier and with all settings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tests.harness.runs import LOCAL, Contents, Storage, on, run_to_end
from tests.services.integration.topologies import ZOO, Story
from txtopo import Config
from txtopo.config import Carrier
from txtopo.state.backend import StateKind

# (parallelism, slots, max_spout_pending)
Settings = tuple[int, int, int]
PARALLELISM, SLOTS, PENDING = (1, 2, 3), (1, 2, 5), (30, 1, 4)
EVERY: list[Settings] = list(product(PARALLELISM, SLOTS, PENDING))
# Each value of each setting meets each value of each other one (an orthogonal array).
PAIRS: list[Settings] = [
    (PARALLELISM[a], SLOTS[b], PENDING[(a + b) % 3]) for a, b in product(range(3), range(3))
]
# Each value of each setting comes once.
SOME = [PAIRS[0], PAIRS[4], PAIRS[8]]
# A resident slot needs a core, of which the session has two.
ON_SPARK: list[tuple[Carrier, Settings]] = [
    ("rdd", SOME[1]),
    ("dataframe", SOME[2]),
    ("resident", (3, 2, 4)),
]

each_story = pytest.mark.parametrize("story", [pytest.param(s, id=name) for name, s in ZOO.items()])


def kinds(story: Story) -> list[StateKind]:
    return ["opaque"] if story.opaque else ["opaque", "transactional"]


def contents(
    story: Story,
    storage: Storage,
    settings: Settings,
    config: Config = LOCAL,
    spark: SparkSession | None = None,
) -> Contents:
    """Run a topology and return what its states hold."""
    parallelism, slots, pending = settings
    config = replace(config, slots=slots, max_spout_pending=pending)
    changes = run_to_end(story.build(storage, parallelism), storage, config, spark)
    assert changes.committed == list(range(1, len(changes.committed) + 1))
    assert not changes.failures
    return {table: storage.read(table) for table in story.fold(parallelism)}


@each_story
def test_a_topology_leaves_what_plain_python_computes(story: Story) -> None:
    for settings in SOME:
        assert contents(story, Storage.in_memory(), settings) == story.fold(settings[0]), settings


@pytest.mark.slow
@each_story
def test_no_setting_changes_what_is_committed(story: Story) -> None:
    for settings, kind in product(EVERY, kinds(story)):
        found = contents(story, Storage.in_memory(kind), settings)
        assert found == story.fold(settings[0]), (settings, kind)


@pytest.mark.parametrize(
    ("story", "carrier", "settings"),
    [
        pytest.param(
            story,
            *ON_SPARK[at % len(ON_SPARK)],
            id=name,
            marks=() if at < len(ON_SPARK) else pytest.mark.slow,
        )
        for at, (name, story) in enumerate(ZOO.items())
    ],
)
def test_a_topology_leaves_the_same_on_spark(
    spark: SparkSession, story: Story, carrier: Carrier, settings: Settings, tmp_path: Path
) -> None:
    """Each topology on one carrier; each carrier has one of them in ``make test``."""
    check_on_spark(spark, story, carrier, settings, tmp_path)


@pytest.mark.slow
@each_story
def test_a_topology_leaves_the_same_on_every_carrier(
    spark: SparkSession, story: Story, tmp_path: Path
) -> None:
    for at, settings in enumerate(PAIRS):
        kind = kinds(story)[at % len(kinds(story))]
        found = contents(story, Storage.in_memory(kind), settings)
        assert found == story.fold(settings[0]), (settings, kind)
    for carrier, settings in ON_SPARK:
        check_on_spark(spark, story, carrier, settings, tmp_path)


def check_on_spark(
    spark: SparkSession, story: Story, carrier: Carrier, settings: Settings, folder: Path
) -> None:
    kind = kinds(story)[0 if carrier == "dataframe" else -1]
    (folder / carrier).mkdir()
    storage = Storage.in_sqlite(folder / carrier, kind)
    found = contents(story, storage, settings, on(carrier), spark)
    assert found == story.fold(settings[0]), (carrier, settings, kind)
