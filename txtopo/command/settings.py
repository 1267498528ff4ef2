"""``txtopo config``: the settings that hold, where each came from, and what it means."""

from __future__ import annotations

import inspect
import re

import click

from txtopo.command.choices import Choices, choices
from txtopo.command.output import print_json, print_line, print_table
from txtopo.config import RECORDS, AtLeastOnceConfig, Config, known_settings
from txtopo.config_sources import file_of_settings, find_settings


@click.command("config")
@choices
def config(chosen: Choices) -> None:
    """Show the settings and their sources.

    The first of these that sets it wins: --set (or --zookeeper, --dir), the variable
    TXTOPO_<SETTING>, the file, the default. Credentials are never shown. Needs nothing but the
    settings.

    \b
    Example:
      TXTOPO_SLOTS=4 txtopo config --set max_spout_pending=3
    """
    given = chosen.given()
    found = find_settings(known_settings(), chosen.config, None, given)
    loaded = [kind.load(chosen.config, **given) for kind in (AtLeastOnceConfig, Config)]
    shown = {**loaded[0].shown(), **loaded[1].shown()}
    shown = {name: shown[name] for name in known_settings()}
    meanings = _meanings()
    rows = [
        (name, value, found[name].source if name in found else "default", meanings[name])
        for name, value in shown.items()
    ]
    file = file_of_settings(chosen.config)
    if chosen.json:
        keys = ("setting", "value", "source", "meaning")
        settings = [dict(zip(keys, _plain(row), strict=True)) for row in rows]
        print_json({"file": None if file is None else str(file), "settings": settings})
        return
    print_line(f"file: {file or 'none; txtopo.toml would be read'}")
    texts = [(name, _text(value), source, meaning) for name, value, source, meaning in rows]
    print_table(["setting", "value", "source", "meaning"], texts)


def _plain(row: tuple[str, object, str, str]) -> list[object]:
    name, value, source, meaning = row
    known = isinstance(value, str | int | float | None)
    return [name, value if known else str(value), source, meaning]


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _meanings() -> dict[str, str]:
    """Return the first sentence about each setting in the docstring of its class."""
    meanings: dict[str, str] = {}
    for kind in (AtLeastOnceConfig, Config, *RECORDS.values()):
        attributes = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
        found = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", attributes, re.MULTILINE)
        meanings |= {kind.called(name): _sentence(" ".join(text.split())) for name, text in found}
    return meanings


def _sentence(text: str) -> str:
    first = re.split(r"(?<=\.) (?=[A-Z`])", text, maxsplit=1)[0]
    return first.replace("``", "").rstrip(".")
