"""Choices: the options of all verbs; they may come before the verb or after it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import click

from txtopo.builders import ReliableTopology, Topology
from txtopo.config import AnyConfig, AtLeastOnceConfig, Config, known_settings
from txtopo.config_sources import Setting, check_known, of_text
from txtopo.errors import ConfigError
from txtopo.uncaught import TRACEBACK


@dataclass(slots=True)
class Choices:
    """The values of the common options; verbs receive it with ``@choices``.

    Attributes:
        zookeeper: ``host:port,host:port/chroot``; None if not given.
        folder: The folder of an embedded ensemble; None if not given.
        config: A file of settings; None if not given.
        settings: The texts of ``--set``, by setting.
        json: Whether to print JSON.
        traceback: Whether to print the traceback of an error.
        modules: Modules whose classes a YAML file may name.
    """

    zookeeper: str | None = None
    folder: Path | None = None
    config: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)
    json: bool = False
    traceback: bool = False
    modules: tuple[str, ...] = ()

    def given(self) -> dict[str, Any]:
        """Return the settings of this command line, each a ``Setting`` with its source.

        Raises:
            ConfigError: One of them cannot be read, or they contradict each other.
        """
        if self.zookeeper is not None and self.folder is not None:
            raise ConfigError(
                "got --zookeeper and --dir; expected only one: the hosts of an ensemble, or the "
                "folder of an embedded one"
            )
        known = known_settings()
        given = {
            name: of_text(known, name, text, f"--set {name}")
            for name, text in self.settings.items()
        }
        if self.zookeeper is not None:
            given["zookeeper.hosts"] = Setting(self.zookeeper, "--zookeeper")
        if self.folder is not None:
            given["zookeeper.hosts"] = Setting("embedded", "--dir")
            given["zookeeper.dir"] = Setting(str(self.folder), "--dir")
        return given

    def load_config(self) -> Config:
        """Return the effective settings, from this command line, the environment and the file.

        Raises:
            ConfigError: A setting is unknown or wrong; the message names its source.
        """
        return Config.load(self.config, **self.given())

    def config_of(self, topology: Topology | ReliableTopology) -> Any:
        """Return the effective settings of a topology, for its kind.

        Raises:
            ConfigError: As above, or ``--set`` has a setting that its kind does not use.
        """
        reliable = isinstance(topology, ReliableTopology)
        kind: type[AnyConfig] = AtLeastOnceConfig if reliable else Config
        for name in self.settings:
            check_known(name, known_settings(kind), f"--set {name}", kind.elsewhere(name))
        return kind.load(self.config, **self.given())


choices = click.make_pass_decorator(Choices)


def common_options(*, hidden: bool) -> list[click.Option]:
    """Return the options of all verbs; they are stored in the ``Choices`` of the call."""
    file = click.Path(path_type=Path, dir_okay=False)
    options = [
        click.Option(
            ["--zookeeper"], metavar="HOSTS", help="The ensemble: host:port,host:port/chroot."
        ),
        click.Option(
            ["--dir", "folder"],
            metavar="FOLDER",
            type=click.Path(path_type=Path),
            help="The folder of an embedded ensemble.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            type=file,
            help="A file of settings; txtopo.toml by default, if it exists.",
        ),
        click.Option(
            ["--set", "settings"],
            metavar="SETTING=VALUE",
            multiple=True,
            help="A setting; can be repeated.",
        ),
        click.Option(["--json"], is_flag=True, help="Print JSON instead of text."),
        click.Option(
            ["--traceback"],
            is_flag=True,
            envvar=TRACEBACK,
            help="Print the traceback of an error, and those of Spark's JVM.",
        ),
    ]
    for option in options:
        option.hidden, option.expose_value, option.callback = hidden, False, _note
    return options


def _note(context: click.Context, option: click.Parameter, value: Any) -> None:
    chosen = context.ensure_object(Choices)
    if option.name == "settings":
        for text in value:
            name, equals, setting = text.partition("=")
            if not equals or not name:
                raise click.BadParameter(
                    f"got {text!r}; expected SETTING=VALUE, such as slots=4", context, option
                )
            chosen.settings[name.strip()] = setting
    elif option.name == "modules":
        chosen.modules += tuple(value)
    elif value not in (None, False):
        setattr(chosen, str(option.name), value)
        if option.name == "traceback":
            os.environ[TRACEBACK] = "1"  # for the JVM that a verb may start


modules_option = click.option(
    "--module",
    "modules",
    metavar="MODULE",
    multiple=True,
    expose_value=False,
    callback=_note,
    help="A module whose classes a YAML file may name; can be repeated.",
)


class Duration(click.ParamType[float]):
    """A length of time: ``30s``, ``5m``, ``1h``, ``2d``, or a number of seconds; in seconds."""

    name = "duration"
    _UNITS: ClassVar = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        if isinstance(value, int | float):
            return float(value)
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]*)", str(value).strip())
        if found is None or found[2] not in self._UNITS:
            self.fail(f"got {value!r}; expected a duration such as 30s, 5m, 1h", param, ctx)
        return float(found[1]) * self._UNITS[found[2]]
