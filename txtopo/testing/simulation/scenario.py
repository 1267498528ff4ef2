"""Scenario: everything that a seed decides before a simulation begins, as plain data."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.pacing import Pace
from txtopo.state.backend import StateKind
from txtopo.testing.simulation.faults import Faults
from txtopo.testing.simulation.topologies import COMMITTERS, SPOUTS, Shape
from txtopo.testing.simulation.world import SHARING_SALT

FAULTS_SALT = 0xFA17
DEAD_LETTERS_SALT = 0xDEAD
DEAD_LETTERS_SHARE = 0.2
PACE_SALT = 0x9ACE
PACE_SHARE = 0.25
GROUPS_SALT = 0x6809
SPOUTS_SALT = 0x5905
SPOUTS_SHARE = 0.25
SEQUENCE_SALT = 0x5E95
SEQUENCE_SHARE = 0.15
PLANNED_TIME_SALT = 0xFAC7
PLANNED_TIME_SHARE = 0.3
FORKS_SALT = 0xF0C4
FORKS_SHARE = 0.2
SHARINGS_DRAWN = ("apart", "apart", "shared", "shared", "clones")
CHAOS_S = 60.0
"""Virtual time after which faults stop. Most seeds have processed everything by then."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulation of a random topology.

    Attributes:
        seed: Seed of all random decisions.
        faults: How often each fault happens.
        coordinators: How many processes run the topology at the same time.
        shape: The topology.
        partitions: Partitions of the source.
        records: Records of each partition.
        batch_rows_max: Most records that a batch takes from a partition.
        slots: Slots of the carrier.
        max_spout_pending: As in ``Config``.
        attempts_max: As in ``Config``.
        chaos_s: Virtual time after which the faults stop.
        min_batch_rows: As in ``Pace``, with a delay of a second.
        max_rows_per_second: As in ``Pace``.
        target_commit_s: As in ``Pace``.
        group_txids_max: As in ``Config``.
        sharing: Whether states share transactions: one of ``world.SHARINGS``.
        forks: Whether an operator forks the topology; both are then judged.
    """

    seed: int
    faults: Faults
    coordinators: int
    shape: Shape
    partitions: int
    records: int
    batch_rows_max: int
    slots: int
    max_spout_pending: int
    attempts_max: int
    chaos_s: float = CHAOS_S
    min_batch_rows: int | None = None
    max_rows_per_second: float | None = None
    target_commit_s: float | None = None
    group_txids_max: int = 10
    sharing: str = "apart"
    forks: bool = False

    @classmethod
    def drawn(cls, seed: int) -> Scenario:
        """Draw a scenario."""
        chance = random.Random(seed)
        # A generator of its own, so that a new kind of fault does not change the other settings.
        faults = Faults.drawn(random.Random(seed ^ FAULTS_SALT))
        if faults.restore:
            # A restored ensemble may have lost what operators asked for.
            faults = faults.without(["command"])
        spout = chance.choice(SPOUTS)
        kind: StateKind = (
            "opaque" if spout == "opaque" or chance.random() < 0.5 else "transactional"
        )
        names = chance.sample(COMMITTERS, chance.choice((1, 1, 1, 2)))
        shape = Shape(
            spout=spout,
            kind=kind,
            committers=tuple(names),
            relay=chance.random() < 0.3,
            parallelism=chance.choice((1, 1, 2, 3)),
            dead_letters=random.Random(seed ^ DEAD_LETTERS_SALT).random() < DEAD_LETTERS_SHARE,
            planned_time=random.Random(seed ^ PLANNED_TIME_SALT).random() < PLANNED_TIME_SHARE,
            sequence=_sequence(random.Random(seed ^ SEQUENCE_SALT), kind),
        )
        window_txids = chance.choice((1, 3, 10)) * chance.choice((1, 2, 3))
        pace = random.Random(seed ^ PACE_SALT)
        several = random.Random(seed ^ SPOUTS_SALT)
        if several.random() < SPOUTS_SHARE:
            further = tuple(several.choices(SPOUTS, k=several.choice((1, 1, 2))))
        else:
            further = ()
        shape = shape.with_further_spouts(further)
        paced = pace.random() < PACE_SHARE
        return cls(
            seed=seed,
            faults=faults,
            coordinators=chance.choice((1, 1, 2, 3)),
            shape=shape,
            partitions=chance.choice((1, 2, 3)),
            records=chance.choice((4, 8, 16, 32)),
            batch_rows_max=chance.choice((1, 2, 4, 8)),
            slots=chance.choice((1, 1, 2, 3)),
            # Not only multiples of the number of runs.
            max_spout_pending=window_txids + chance.choice((0, 1, 2)),
            attempts_max=chance.choice((3, 100)),
            min_batch_rows=pace.choice((None, 2, 5)) if paced else None,
            max_rows_per_second=pace.choice((None, 5.0, 7.5, 50.0)) if paced else None,
            target_commit_s=pace.choice((None, None, 0.5)) if paced else None,
            group_txids_max=random.Random(seed ^ GROUPS_SALT).choice((1, 2, 3, 10, 10)),
            sharing=random.Random(seed ^ SHARING_SALT).choice(SHARINGS_DRAWN),
            # A restored ensemble may have lost the fork.
            forks=not faults.restore and random.Random(seed ^ FORKS_SALT).random() < FORKS_SHARE,
        )

    def config(self) -> Config:
        """Return the ``Config`` of the topology."""
        return Config(
            carrier="local",
            zookeeper="memory",
            slots=self.slots,
            max_spout_pending=self.max_spout_pending,
            attempts_max=self.attempts_max,
            group_txids_max=self.group_txids_max,
            batch_timeout_s=5.0,
            poll_interval_s=0.5,
            backoff_s=0.05,
            pace=self._pace(),
        )

    def _pace(self) -> Pace:
        return Pace(
            min_batch_rows=self.min_batch_rows,
            max_batch_delay_s=None if self.min_batch_rows is None else 1.0,
            max_rows_per_second=self.max_rows_per_second,
            target_commit_s=self.target_commit_s,
        )

    def changed(self, changes: Mapping[str, str], without: Collection[str] = ()) -> Scenario:
        """Return this scenario with some settings changed; values are texts.

        Args:
            changes: Value of each setting, by its name (``shape.relay`` for one of the shape).
            without: Kinds of faults that do not happen.

        Raises:
            ConfigError: There is no such setting or fault, or the value cannot be read.
        """
        scenario = replace(self, faults=self.faults.without(_known(without)))
        for name, text in changes.items():
            outer, _, inner = name.partition(".")
            if outer == "shape" and inner:
                shape = replace(scenario.shape, **_read(scenario.shape, inner, text))
                scenario = replace(scenario, shape=shape)
            else:
                scenario = replace(scenario, **_read(scenario, name, text))
        return scenario

    def command(self) -> str:
        """Return the command line that runs this scenario."""
        drawn = Scenario.drawn(self.seed)
        kinds = [k for k in Faults.kinds() if getattr(drawn.faults, k) != getattr(self.faults, k)]
        words = [f"txtopo-simulate --seed {self.seed}", *(f"--without {kind}" for kind in kinds)]
        for name in CHANGEABLE:
            value = _setting(self, name)
            if value != _setting(drawn, name):
                words.append(f"--set {name}={_text(value)}")
        return " ".join(words)


def _sequence(chance: random.Random, kind: StateKind) -> str:
    """Draw the kind of the first part of a sequence; empty for no sequence."""
    if chance.random() >= SEQUENCE_SHARE:
        return ""
    return chance.choice([each for each in SPOUTS if kind == "opaque" or each != "opaque"])


CHANGEABLE = (
    "coordinators",
    "partitions",
    "records",
    "batch_rows_max",
    "slots",
    "max_spout_pending",
    "attempts_max",
    "chaos_s",
    "min_batch_rows",
    "max_rows_per_second",
    "target_commit_s",
    "group_txids_max",
    "sharing",
    "forks",
    "shape.spout",
    "shape.kind",
    "shape.committers",
    "shape.relay",
    "shape.parallelism",
    "shape.dead_letters",
    "shape.further_spouts",
    "shape.planned_time",
    "shape.sequence",
)
"""The settings that the command line can change."""


_OPTIONAL = ("min_batch_rows", "max_rows_per_second", "target_commit_s")


def _setting(scenario: Scenario, name: str) -> object:
    outer, _, inner = name.partition(".")
    value: object = getattr(scenario, outer)
    return getattr(value, inner) if inner else value


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _read(owner: object, name: str, text: str) -> dict[str, Any]:
    known = [each.rpartition(".")[2] for each in CHANGEABLE]
    if name not in known or not hasattr(owner, name):
        raise ConfigError(
            f"unknown setting of a scenario; got {name!r}; expected one of {', '.join(CHANGEABLE)}",
            setting=name,
        )
    now = getattr(owner, name)
    try:
        if text == "None" and name in _OPTIONAL:
            return {name: None}
        if name in ("max_rows_per_second", "target_commit_s"):
            return {name: float(text)}
        if isinstance(now, bool):
            return {name: {"True": True, "False": False}[text]}
        if isinstance(now, tuple):
            return {name: tuple(text.split(",")) if text else ()}
        if isinstance(now, float):
            return {name: float(text)}
        return {name: text if isinstance(now, str) else int(text)}
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"bad value of the setting {name!r} of a scenario; got {text!r}; now it is {now!r}",
            setting=name,
            got=text,
        ) from error


def _known(kinds: Collection[str]) -> Collection[str]:
    unknown = [kind for kind in kinds if kind not in Faults.kinds()]
    if unknown:
        raise ConfigError(
            f"unknown kind of fault; got {', '.join(unknown)}; expected one of "
            f"{', '.join(Faults.kinds())}",
            got=tuple(unknown),
            expected=tuple(Faults.kinds()),
        )
    return kinds
