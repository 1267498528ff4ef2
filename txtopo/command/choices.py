"""Choices: what stands before the verb of a command line, and holds for all verbs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user chose before the verb; verbs take it with ``@choices``.

    Attributes:
        zookeeper: ``host:port,host:port/chroot``; None if not given.
        folder: The folder of an embedded ensemble; None if not given.
        config: A file of settings; None if not given.
        json: Whether to print JSON.
    """

    zookeeper: str | None = None
    folder: Path | None = None
    config: Path | None = None
    json: bool = False


choices = click.make_pass_decorator(Choices)
