"""Seeds that find bugs. None of them may find one in the tree as it is.

Some once found a bug of txtopo and are named for it; the others find bugs that are planted. What a
seed draws changes when a kind of fault or a setting is added. Then the bug is planted once more and
gets the seed that finds it now: ``make mutants ARGS=--simulator`` writes those of planted bugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.mutants.patches import load_patches
from tests.faults.mutants.report import PAGE, seeds_of


@dataclass(frozen=True, slots=True)
class NamedSeed:
    """A seed with what it found.

    Attributes:
        found: The bug.
        seed: The seed.
        settings: Settings that differ from what the seed draws.
        without: Kinds of faults that do not matter.
    """

    found: str
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()


def seeds_of_planted(*, of_slots: bool = False) -> list[int]:
    """Return seeds of which one fails with each planted bug that the simulator catches alone."""
    found = seeds_of(PAGE.read_text())
    slots = {patch.name for patch in load_patches() if patch.of_slots}
    return sorted({seed for name, seed in found.items() if (name in slots) is of_slots})


GROUPS = {
    "group_txids_max": "10",
    "shape.kind": "opaque",
    "shape.parallelism": "1",
    "batch_rows_max": "1",
    "max_spout_pending": "30",
}
"""Settings with which most seeds commit groups."""

SEEDS_OF_GROUPS = (7, 8, 10, 17, 20, 53)
"""With :data:`GROUPS` they write groups, do some of them again, and adopt one at a takeover.

Some are written to several states in one transaction."""

NAMED_SEEDS = (
    NamedSeed(
        "a question for the leadership continues after the run has closed its client",
        53,
        {"max_spout_pending": "30"},
    ),
    NamedSeed(
        "a late envelope of the processing phase ends the run in the commit phase",
        1653,
        {"max_spout_pending": "3", "sharing": "apart"},
    ),
    NamedSeed(
        "a stamp of the processing phase stands for a lost one of the commit phase",
        4718,
        {"shape.dead_letters": "False", "max_spout_pending": "4"},
    ),
    NamedSeed(
        "what the commit phase of one txid sent stands for what another one lost",
        5541,
        {"max_spout_pending": "13"},
    ),
    NamedSeed(
        "the simulator starts two processes for one that is killed as it ends",
        668,
        {"max_spout_pending": "30", "sharing": "apart"},
    ),
    NamedSeed(
        "a checker takes a task without its partition for a second cut of the batch",
        764,
        {"max_spout_pending": "30"},
    ),
    NamedSeed(
        "a checker forgets the metadata that ZooKeeper lost when it was set back",
        202_812,
        {"max_spout_pending": "6", "sharing": "apart"},
    ),
    NamedSeed(
        "a checker forgets the last version before ZooKeeper was set back, which is in no write",
        406_323,
        {"chaos_s": "1.875", "sharing": "apart"},
        ("envelope_doubled", "envelope_late", "empty_replay"),
    ),
    NamedSeed(
        "the simulated source trims what a batch has read that was undone by a rebuild",
        501_051,
        {
            "sharing": "shared",
            "shape.kind": "opaque",
            "shape.committers": "balances,logs,totals",
        },
    ),
    NamedSeed(
        "a group is pinned as it began, though less of it was sent to the states", 17, GROUPS
    ),
)

SLOT_SEEDS_OF_TABLES = (31, 67, 137, 215, 225, 238, 294)
"""With those of planted bugs they pass both tables, and have each kind of fault and of end."""

NAMED_SLOT_SEEDS = (
    NamedSeed(
        "a slot that is back is told as missing when Spark has said how many cores it has", 0
    ),
)
"""Of the simulation of resident slots."""
