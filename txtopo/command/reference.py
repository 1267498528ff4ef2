"""``txtopo help``: the reference of the Python API, from the docstrings of the public names."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import click

from txtopo.command.output import print_line
from txtopo.errors import nearest, similar

MODULES = (
    "txtopo",
    "txtopo.spouts",
    "txtopo.bolts",
    "txtopo.streams",
    "txtopo.state",
    "txtopo.operations",
    "txtopo.outbox",
    "txtopo.errors",
    "txtopo.testing",
    "txtopo.plugins.spouts",
    "txtopo.plugins.stores",
    "txtopo.plugins.ensembles",
)
"""The modules that users import from; a name is shown where it comes first."""

WIDTH_MAX = 88
ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")


@dataclass(frozen=True, slots=True)
class PublicName:
    """A name that users import.

    Attributes:
        name: The name, such as ``Count``.
        module: The module to import it from.
        value: What it names.
    """

    name: str
    module: str
    value: object


@click.command("help")
@click.argument("name", required=False)
def show_reference(name: str | None) -> None:
    """Show the reference of the Python API.

    Without a NAME, it lists each public name with its first line. With a NAME, such as Count or
    StreamBuilder.source, it shows its signature and its docstring.

    \b
    Example:
      txtopo help PersistentAggregate
    """
    names = {each.name: each for each in public_names()}
    for line in _overview(names) if name is None else _described(name, names):
        print_line(line)


def public_names() -> Iterator[PublicName]:
    """Yield each public name once."""
    seen = set[str]()
    for place in MODULES:
        module = importlib.import_module(place)
        for name in getattr(module, "__all__", ()) or _classes_of(module):
            if name not in seen and not name.startswith("_"):
                seen.add(name)
                yield PublicName(name, place, getattr(module, name))


def _classes_of(module: ModuleType) -> list[str]:
    """Return the names of the classes that a module without ``__all__`` defines."""
    classes = inspect.getmembers(module, inspect.isclass)
    return [name for name, value in classes if value.__module__ == module.__name__]


def _overview(names: dict[str, PublicName]) -> Iterator[str]:
    width = max(map(len, names))
    for place in MODULES:
        yield f"{place}:"
        here = [each for each in names.values() if each.module == place]
        for each in sorted(here, key=lambda each: each.name.lower()):
            yield f"  {each.name:{width}}  {_first_line(each.value)}"
        yield ""


def _described(asked: str, names: dict[str, PublicName]) -> Iterator[str]:
    name, _, member = asked.removeprefix("txtopo.").partition(".")
    found = names.get(name)
    if found is None:
        raise click.UsageError(f"there is no public name {name!r}; {_hint(name, names)}")
    if not member:
        yield f"from {found.module} import {name}"
        yield ""
        yield from _text_of(name, found.value)
        return
    members = dict(_members(found.value))
    if member not in members:
        raise click.UsageError(
            f"{name} has no public method or attribute {member!r}; {nearest(member, members)}"
        )
    yield from _text_of(f"{name}.{member}", members[member])


def _hint(name: str, names: dict[str, PublicName]) -> str:
    return similar(name, names) or "`txtopo help` lists them"


def _text_of(name: str, value: object) -> Iterator[str]:
    yield name + _signature(value)
    text = inspect.getdoc(value)
    if text:
        yield ""
        yield _plain(text)
    listed = [(each, _first_line(member)) for each, member in _members(value)]
    if listed:
        yield ""
        yield "Methods and attributes:"
        width = max(len(each) for each, _ in listed)
        yield from (f"  {each:{width}}  {line}".rstrip() for each, line in listed)


def _signature(value: object) -> str:
    """Return the parameters of a class or function, one a line if they are long."""
    if not callable(value):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    text = str(found)
    if len(text) > WIDTH_MAX:
        listed, keyword_only = "", False
        for each in found.parameters.values():
            if each.kind is each.KEYWORD_ONLY and not keyword_only:
                listed, keyword_only = f"{listed}    *,\n", True
            listed += f"    {each},\n"
        text = f"(\n{listed}){text.rpartition(')')[2]}"
    return text.replace("'", "").removesuffix(" -> None")


def _members(value: object) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, those of its bases included."""
    if not inspect.isclass(value):
        return
    for name, member in inspect.getmembers(value):
        ours = getattr(member, "__module__", "txtopo") or "txtopo"
        documented = inspect.isroutine(member) or isinstance(member, property)
        if not name.startswith("_") and documented and ours.startswith("txtopo"):
            yield name, member


def _first_line(value: object) -> str:
    return _plain((inspect.getdoc(value) or "").partition("\n")[0])


def _plain(text: str) -> str:
    """Return a docstring without the marks of reStructuredText."""
    return ROLE.sub(r"`\1`", text).replace("``", "`")
