"""topology_from_yaml: builds a topology from a YAML file, as Storm's Flux does.

A file names classes and their arguments, so it decides what code runs. Two rules keep a file from
running other code than its reader expects:

1. It is data: tags that make objects of Python are refused.
2. Its classes are those that txtopo exports, and those of the modules that the caller names. The
   file itself cannot name modules.

``docs/how-to/yaml.md`` describes the format. Each error says in which line and column of the file
it is.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from txtopo.builders.declarer import BoltDeclarer, InputDeclarer
from txtopo.builders.transactional import Topology, TransactionalTopologyBuilder
from txtopo.errors import TopologyError, TxtopoError, nearest, text_of
from txtopo.extras import require
from txtopo.reliable.builder import ReliableTopology, TopologyBuilder
from txtopo.state.registry import State, open_state
from txtopo.tuples import DEFAULT_STREAM, Fields
from txtopo.yaml.document import Item, YamlDocument

OWN_MODULES = ("txtopo", "txtopo.bolts", "txtopo.spouts", "txtopo.state")
"""Modules whose exported classes each file may name."""

WITH_FIELDS = frozenset({"fields", "partial_key"})
GROUPINGS = WITH_FIELDS | {
    *("all", "direct", "global", "local_or_shuffle", "none", "shuffle"),
}
"""The groupings that a file can name."""

_KINDS = ("transactional", "at-least-once")

R = TypeVar("R")


def topology_from_yaml(
    path: str | os.PathLike[str],
    *,
    modules: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Topology | ReliableTopology:
    """Build the topology that a YAML file describes (compare Storm's Flux).

    Args:
        path: The file.
        modules: Modules of your own whose classes it may name.
        environment: Values of ``${NAME}``; by default those of the process.

    Raises:
        TopologyError: The file cannot be read, or what it describes cannot run; the message has the
            line and the column.
        ConfigError: PyYAML is not installed; ``pip install 'txtopo[yaml]'``.

    Example:
        ``topology_from_yaml("words.yaml", modules=["my_bolts"]).start()``
    """
    require("yaml", "topology_from_yaml")
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise TopologyError(
            f"{os.fspath(path)!r} cannot be read; got {error.strerror}; expected a YAML file",
            path=os.fspath(path),
        ) from error
    document = YamlDocument(Path(path).name, os.environ if environment is None else environment)
    return _Definition(document, modules).topology(document.parsed(text))


class _Definition:
    """Makes a topology of what stands in a file."""

    def __init__(self, document: YamlDocument, modules: Iterable[str]) -> None:
        self._error = document.error
        self._modules = (*OWN_MODULES, *modules)

    def topology(self, root: Item) -> Topology | ReliableTopology:
        """Return the topology."""
        keys = self._keys(
            root, ("topology", "spouts"), ("kind", "bolts", "streams", "dead_letters")
        )
        id, kind = self._text(keys["topology"]), _KINDS[0]
        if "kind" in keys and (kind := self._text(keys["kind"])) not in _KINDS:
            raise self._error(
                keys["kind"], f"unknown kind; got {kind!r}; expected {' or '.join(_KINDS)}"
            )
        if kind == _KINDS[1]:
            return self._at_least_once(root, id, keys)
        spouts = self._list(keys["spouts"])
        if not spouts:
            problem = "a topology needs at least one spout; got none; expected a list of them"
            raise self._error(keys["spouts"], problem)
        spout = self._component(spouts[0])
        letters = keys.get("dead_letters")
        dead_letters = None if letters is None else self._value(letters)
        if isinstance(dead_letters, str):
            dead_letters = self._done(letters or root, open_state, dead_letters)
        arguments = (id, *spout)
        make = TransactionalTopologyBuilder
        builder = self._done(spouts[0], make, *arguments, dead_letters=dead_letters)
        for other in spouts[1:]:
            self._done(other, builder.set_spout, *self._component(other))
        declarers: dict[str, InputDeclarer] = {}
        for bolt in self._listed(keys, "bolts"):
            declarers |= self._bolt(builder, bolt)
        self._streams(keys, declarers)
        return self._done(root, builder.build_topology)

    def _at_least_once(self, root: Item, id: str, keys: Mapping[str, Item]) -> ReliableTopology:
        if "dead_letters" in keys:
            problem = "an at-least-once topology has no dead letters; got dead_letters; remove it"
            raise self._error(keys["dead_letters"], problem)
        builder = self._done(keys["topology"], TopologyBuilder, id)
        for spout in self._list(keys["spouts"]):
            self._done(spout, builder.set_spout, *self._component(spout))
        declarers: dict[str, InputDeclarer] = {}
        for bolt in self._listed(keys, "bolts"):
            component = self._component(bolt)
            declarers[component[0]] = self._done(bolt, builder.set_bolt, *component)
        self._streams(keys, declarers)
        return self._done(root, builder.build_topology)

    # ------------------------------------------------------------ components and streams

    def _component(self, item: Item, more: Sequence[str] = ()) -> tuple[str, Any, int]:
        """Return id, object and parallelism of a spout or bolt."""
        keys = self._keys(item, ("id", "class"), ("arguments", "parallelism", *more))
        parallelism = self._value(keys["parallelism"]) if "parallelism" in keys else 1
        return self._text(keys["id"]), self._object(keys), parallelism

    def _bolt(self, builder: TransactionalTopologyBuilder, item: Item) -> dict[str, InputDeclarer]:
        id, bolt, parallelism = self._component(item, ("states", "committer", "dead_letters_on"))
        keys = item.value
        committer = self._value(keys["committer"]) if "committer" in keys else False
        if not isinstance(committer, bool):
            raise self._error(
                keys["committer"], f"committer must be true or false; got {committer!r}"
            )
        add = builder.set_committer_bolt if committer else builder.set_bolt
        declarer: BoltDeclarer = self._done(item, add, id, bolt, parallelism)
        if "states" in keys:
            for name, state in self._mapping(keys["states"]).items():
                self._done(state, declarer.with_state, name, self._state(state))
        if "dead_letters_on" in keys:
            names = self._list(keys["dead_letters_on"])
            errors = [self._exception(each) for each in names]
            self._done(keys["dead_letters_on"], declarer.dead_letters_on, *errors)
        return {id: declarer}

    def _streams(self, keys: Mapping[str, Item], declarers: Mapping[str, InputDeclarer]) -> None:
        for item in self._listed(keys, "streams"):
            stream = self._keys(item, ("from", "to", "grouping"), ("fields", "stream"))
            target, grouping = self._text(stream["to"]), self._text(stream["grouping"])
            if target not in declarers:
                problem = f"no bolt has the id {target!r}; {nearest(target, declarers)}"
                raise self._error(stream["to"], problem)
            if grouping not in GROUPINGS:
                problem = f"unknown grouping {grouping!r}; {nearest(grouping, sorted(GROUPINGS))}"
                raise self._error(stream["grouping"], problem)
            if ("fields" in stream) != (grouping in WITH_FIELDS):
                wanted = "fields: [name, …]" if grouping in WITH_FIELDS else "no fields"
                got = "none" if grouping in WITH_FIELDS else "fields"
                problem = f"grouping {grouping!r} takes {wanted}; got {got}"
                raise self._error(stream.get("fields", item), problem)
            subscribe = getattr(declarers[target], f"{grouping}_grouping")
            source = self._text(stream["from"])
            name = self._text(stream["stream"]) if "stream" in stream else DEFAULT_STREAM
            fields = [self._value(stream["fields"])] if "fields" in stream else []
            self._done(item, subscribe, source, *fields, stream=name)

    # ------------------------------------------------------------ objects

    def _value(self, item: Item) -> Any:
        """Return a value of the file as an argument: with objects, states and fields made."""
        match item.value:
            case dict() if "class" in item.value:
                return self._object(self._keys(item, ("class",), ("arguments",)))
            case dict() if "state" in item.value:
                return self._state(item)
            case dict() if item.value.keys() == {"fields"}:
                return self._done(item, Fields, self._value(item.value["fields"]))
            case dict() as values:
                return {name: self._value(each) for name, each in values.items()}
            case list() as values:
                return [self._value(each) for each in values]
            case value:
                return value

    def _state(self, item: Item) -> State:
        """Return the state of ``{state: URL, table: …}``, or of a URL alone."""
        if not isinstance(item.value, dict):
            return self._done(item, open_state, self._text(item))
        self._check_names(item)
        options = {name: self._value(each) for name, each in item.value.items()}
        if "state" not in options:
            raise self._error(
                item, f"a state has no URL; got {', '.join(options)}; expected state: URL"
            )
        url = options.pop("state")
        for name in options.keys() & {"key", "value"}:
            options[name] = self._done(item.value[name], Fields, options[name])
        return self._done(item, open_state, url, **options)

    def _object(self, keys: Mapping[str, Item]) -> Any:
        """Return the object of ``class`` and ``arguments``."""
        found = self._class(keys["class"])
        given = keys.get("arguments")
        if given is None:
            return self._done(keys["class"], found)
        if isinstance(given.value, dict):
            # An argument may be called state, which elsewhere makes a state of its mapping.
            self._check_names(given)
            named = {name: self._value(each) for name, each in given.value.items()}
            return self._done(keys["class"], found, **named)
        arguments = self._value(given)
        if isinstance(arguments, list):
            return self._done(keys["class"], found, *arguments)
        expected = "expected a list, or a mapping by name"
        raise self._error(given, f"arguments cannot be read; got {arguments!r}; {expected}")

    def _check_names(self, item: Item) -> None:
        """Check that the keys of a mapping can be names of arguments."""
        for name, value in self._mapping(item).items():
            if not isinstance(name, str):
                problem = f"an argument needs a name; got {name!r}; expected name: value"
                raise self._error(value, problem)

    def _class(self, item: Item) -> Any:
        dotted = self._text(item)
        module_name, _, name = dotted.rpartition(".")
        if module_name not in self._modules:
            known = ", ".join(self._modules)
            raise self._error(
                item,
                f"class {dotted!r} is in a module that was not named; got {module_name!r}; "
                f"expected one of {known}; name your own modules when you load the file, with "
                "modules=[…], or with --module on the command line",
            )
        module = self._done(item, import_module, module_name)
        classes = _classes(module, own=module_name in OWN_MODULES)
        if name not in classes:
            raise self._error(
                item, f"module {module_name!r} has no class {name!r}; {nearest(name, classes)}"
            )
        return classes[name]

    def _exception(self, item: Item) -> type[BaseException]:
        name = self._text(item)
        found = getattr(builtins, name, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
        if "." not in name:
            expected = "expected one of Python's, or module.Class"
            raise self._error(item, f"unknown exception {name!r}; {expected}")
        listed: type[BaseException] = self._class(item)
        return listed

    # ------------------------------------------------------------ shapes

    def _keys(
        self, item: Item, needed: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, Item]:
        """Return a mapping that has all needed keys and no unknown ones."""
        found, known = self._mapping(item), (*needed, *optional)
        for name in found:
            if name not in known:
                raise self._error(found[name], f"unknown key {name!r}; {nearest(name, known)}")
        for name in needed:
            if name not in found:
                got = ", ".join(found) or "an empty mapping"
                raise self._error(item, f"key {name!r} is missing; got {got}; expected {name}: …")
        return found

    def _mapping(self, item: Item) -> dict[str, Item]:
        if isinstance(item.value, dict):
            return item.value
        raise self._error(item, f"this is not a mapping; got {_shape(item)}; expected key: value")

    def _list(self, item: Item) -> list[Item]:
        if isinstance(item.value, list):
            return item.value
        raise self._error(item, f"this is not a list; got {_shape(item)}; expected a list")

    def _listed(self, keys: Mapping[str, Item], name: str) -> list[Item]:
        return self._list(keys[name]) if name in keys else []

    def _text(self, item: Item) -> str:
        if isinstance(item.value, str):
            return item.value
        problem = f"this is not text; got {_shape(item)}; expected text; put it in quotes"
        raise self._error(item, problem)

    def _done(self, item: Item, call: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """Call a function that builds a part; add the place in the file to its errors."""
        try:
            return call(*arguments, **named)
        except TxtopoError as error:
            raise self._error(item, str(error)) from error
        except Exception as error:
            raise self._error(
                item, f"{text_of(error)}; got {type(error).__name__} from {_name(call)}"
            ) from error


def _classes(module: ModuleType, *, own: bool) -> dict[str, type]:
    """Return the classes that a file may name: those exported, or else those defined there."""
    exported = getattr(module, "__all__", None)
    named = vars(module) if exported is None else {each: getattr(module, each) for each in exported}
    return {
        name: found
        for name, found in named.items()
        if isinstance(found, type)
        and not name.startswith("_")
        and (own or exported is not None or found.__module__ == module.__name__)
    }


def _name(call: Callable[..., object]) -> str:
    name: str = getattr(call, "__name__", type(call).__name__)
    return name


def _shape(item: Item) -> str:
    match item.value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case value:
            return repr(value)[:80]
