"""Settings from a file, the environment and code: the value of each, and where it came from.

What comes first holds: code, the variable ``TXTOPO_<SETTING>``, the file ``txtopo.toml``, the
default. A setting of a record, such as ``zookeeper.hosts``, is in a table of the file. A value is
checked where it is read, so an error names the line or the variable.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from txtopo.errors import ConfigError, nearest
from txtopo.uncaught import TRACEBACK

FILE = "txtopo.toml"
PREFIX = "TXTOPO_"
FILE_VARIABLE = "TXTOPO_CONFIG"

OTHER_VARIABLES = (FILE_VARIABLE, "TXTOPO_JARS", "TXTOPO_LONG", TRACEBACK)
"""Variables of our prefix that are not settings: the file of settings, jars of Delta, a switch of
the conformance suites, and one for whole tracebacks."""

# Kubernetes sets these for each service; one whose name begins with txtopo must not end every run.
_KUBERNETES = re.compile(r"TXTOPO_(\w+_)?(SERVICE_(HOST|PORT)\w*|PORT(_\d+_\w+)?)")

_TRUTH = {"true": True, "yes": True, "on": True, "1": True}
_TRUTH |= {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that was given.

    Attributes:
        value: The value.
        source: Where it came from, in words: ``code``, a variable, a file and its line.
    """

    value: object = field(repr=False)  # it may be a password
    source: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a setting.

    Attributes:
        kind: The type that its field is declared with.
        secret: Whether its value must never be shown.
    """

    kind: Any
    secret: bool

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that the setting may have."""
        union = get_origin(self.kind) in (Union, UnionType)
        kinds = get_args(self.kind) if union else (self.kind,)
        return tuple(str if get_origin(kind) is Literal else kind for kind in kinds)

    @property
    def expected(self) -> str:
        """The valid values of the setting, in words."""
        words = [_WORDS[get_origin(kind) or kind] for kind in self.kinds]
        return " or ".join(words)


_WORDS = {
    bool: "true or false",
    Collection: "a list such as ['states', 'columns']",
    float: "a number",
    int: "a whole number",
    str: "a text",
    Mapping: "a table such as {use_ssl = true}",
    type(None): "'none'",
}


def find_settings(
    known: Mapping[str, Known],
    path: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None,
    settings: Mapping[str, object],
) -> dict[str, Setting]:
    """Return the settings that are given, each with the value that takes precedence.

    Args:
        known: The settings that there are.
        path: The file; by default what ``TXTOPO_CONFIG`` names, else ``txtopo.toml`` in the current
            folder, if it is there.
        environment: The variables; by default those of this process.
        settings: What code gives, by the same names; a :class:`Setting` brings its own source.

    Raises:
        ConfigError: A setting is unknown or of the wrong type, or the file cannot be read.
    """
    variables = os.environ if environment is None else environment
    given: dict[str, Setting] = {}
    for name, value in settings.items():
        check_known(name, known, "code")
        given[name] = value if isinstance(value, Setting) else Setting(value, "code")
    file = dict(_of_file(known, path, variables))
    return {**file, **dict(_of_environment(known, variables)), **given}


def file_of_settings(
    path: str | os.PathLike[str] | None, variables: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the file that settings are read from, if any: that of a path, or the default one."""
    if path is not None:
        return Path(path)
    if named := variables.get(FILE_VARIABLE):
        return Path(named)
    return Path(FILE) if Path(FILE).exists() else None


def of_text(known: Mapping[str, Known], name: str, text: str, source: str) -> Setting:
    """Return a setting that is given as text.

    Args:
        known: The settings that there are.
        name: Its name.
        text: A number; true or false; ``none``; names with commas between them; a table as in
            TOML; or a text, without quotes.
        source: Where it came from.

    Raises:
        ConfigError: It is unknown, or its value cannot be read.
    """
    check_known(name, known, source)
    setting = known[name]
    try:
        return Setting(_parsed(text, setting.kinds), source)
    except ValueError as error:
        raise _wrong(name, setting, text, source) from error


def located(error: ConfigError, found: Mapping[str, Setting]) -> ConfigError:
    """Return an error of a setting with the place that the setting came from."""
    name = error.facts.get("setting")
    setting = found.get(str(name))
    if setting is None or setting.source == "code":
        return error
    return ConfigError(f"{error}; it comes from {setting.source}", **error.facts)


def _of_environment(
    known: Mapping[str, Known], variables: Mapping[str, str]
) -> Iterator[tuple[str, Setting]]:
    names = {PREFIX + name.replace(".", "_").upper(): name for name in known}
    for variable, text in variables.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if _KUBERNETES.fullmatch(variable) and (variable not in names or "://" in text):
            continue  # TXTOPO_PAGE_PORT is a setting, unless a service is named txtopo-page
        if variable not in names:
            raise ConfigError(
                f"unknown variable {variable!r}; "
                f"{nearest(variable.upper(), [*names, *OTHER_VARIABLES])}",
                setting=variable.removeprefix(PREFIX).lower(),
            )
        if text:  # An empty variable is one that is not set, as in scripts and compose files.
            yield names[variable], of_text(known, names[variable], text, variable)


def _of_file(
    known: Mapping[str, Known],
    path: str | os.PathLike[str] | None,
    variables: Mapping[str, str],
) -> Iterator[tuple[str, Setting]]:
    file = file_of_settings(path, variables)
    if file is None:
        return
    text = _read(file, named=path is None and bool(variables.get(FILE_VARIABLE)))
    try:
        values = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number too long for Python is not an error of TOML
        raise ConfigError(
            f"{file} is not valid TOML: {error}; expected lines such as slots = 4", path=str(file)
        ) from error
    for name, value in _settings_of(values, known, file, text):
        source = f"{file}, line {_line(text, name)}"
        check_known(name, known, source)
        setting = known[name]
        if not _fits(value, setting.kinds):
            shown = value if isinstance(value, str | int | float) else type(value).__name__
            raise _wrong(name, setting, shown, source)
        none = isinstance(value, str) and value.lower() == "none" and type(None) in setting.kinds
        try:
            if isinstance(value, int) and float in setting.kinds:
                value = float(value)
            yield name, Setting(None if none else value, source)
        except OverflowError as error:
            raise _wrong(name, setting, value, source) from error


def _settings_of(
    values: Mapping[str, object], known: Mapping[str, Known], file: Path, text: str
) -> Iterator[tuple[str, object]]:
    """Yield the settings in a file; those of a table have dotted names."""
    tables = {name.partition(".")[0] for name in known if "." in name}
    for name, value in values.items():
        source = f"{file}, line {_line(text, name)}"
        if name == "txtopo" and isinstance(value, dict):
            raise ConfigError(
                f"settings belong at the top level of the file; got a table [txtopo] in {source}; "
                "remove that line",
                path=str(file),
            )
        if name not in tables:
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            some = next(each for each in known if each.startswith(f"{name}."))
            raise ConfigError(
                f"{name} is a table; got {type(value).__name__} in {source}; expected [{name}] "
                f"followed by its settings, such as {some}",
                setting=name,
            )


def _read(file: Path, *, named: bool) -> str:
    try:
        return file.read_bytes().decode()
    except (OSError, ValueError) as error:  # not UTF-8, or NUL in its name
        by = f", which {FILE_VARIABLE} names," if named else ""
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"the file of settings {str(file)!r}{by} cannot be read; got {why}; expected a TOML "
            "file with lines such as slots = 4",
            path=str(file),
        ) from error


def _line(text: str, name: str) -> int:
    """Return the line of a file in which a setting, or a table of that name, begins."""
    lines = text.split("\n")
    outer, _, inner = name.partition(".")
    whole = r"\s*\.\s*".join(re.escape(each) for each in name.split("."))
    if (line := _first(lines, whole)) is not None:
        return line
    begin = _first(lines, re.escape(outer)) or 1
    below = _first(lines[begin:], re.escape(inner)) if inner else None
    return begin + (below or 0)


def _first(lines: Sequence[str], name: str) -> int | None:
    """Return the number of the first line that begins with a name, if any; 1 is the first."""
    begins = re.compile(rf"""\s*\[?\s*["']?{name}["']?\s*[=.\]]""")
    return next((n for n, line in enumerate(lines, 1) if begins.match(line)), None)


def check_known(name: str, known: Mapping[str, Known], source: str, elsewhere: str = "") -> None:
    """Check that a setting of this name exists.

    Args:
        name: Its name.
        known: The settings that there are.
        source: Where it came from.
        elsewhere: The hint that another class has the setting; empty if none has it.

    Raises:
        ConfigError: There is none of that name; it says which class has it, or what is similar.
    """
    if name not in known:
        where = "" if source == "code" else f" in {source}"
        inner = [each for each in known if each.startswith(f"{name}.")]
        hint = f"expected one of {', '.join(inner)}" if inner else nearest(name, known)
        raise ConfigError(f"unknown setting {name!r}{where}; {elsewhere or hint}", setting=name)


def _wrong(name: str, setting: Known, value: object, source: str) -> ConfigError:
    got = "a value that is not shown" if setting.secret else repr(value)
    return ConfigError(
        f"{name} is of the wrong type; got {got:.200}; expected {setting.expected}; it comes from "
        f"{source}",
        setting=name,
    )


def _parsed(text: str, kinds: tuple[Any, ...]) -> object:
    if type(None) in kinds and text.strip().lower() == "none":
        return None
    if text.lstrip().startswith("{") and any(get_origin(kind) is Mapping for kind in kinds):
        return _table(text)
    for kind in kinds:
        if kind is bool:
            if (word := text.strip().lower()) in _TRUTH:
                return _TRUTH[word]
            if kind is kinds[-1]:
                raise ValueError(word)
        elif kind in (int, float):
            return kind(text)
        elif kind is str:
            return text
        elif get_origin(kind) is Collection:
            return tuple(name.strip() for name in text.split(","))
        elif get_origin(kind) is not None:
            return _table(text)
    return text


def _table(text: str) -> dict[str, object]:
    # A line's end would begin another setting.
    table = tomllib.loads(f"value = {text.strip()}") if "\n" not in text.strip() else {}
    if set(table) != {"value"} or not isinstance(table["value"], dict):
        raise ValueError("no table")
    return table["value"]


def _fits(value: object, kinds: tuple[Any, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, str):
        return str in kinds or (type(None) in kinds and value.lower() == "none")
    if isinstance(value, int):
        return int in kinds or float in kinds
    if isinstance(value, float):
        return float in kinds
    origin = Mapping if isinstance(value, dict) else Collection
    return isinstance(value, dict | list) and any(get_origin(kind) is origin for kind in kinds)
