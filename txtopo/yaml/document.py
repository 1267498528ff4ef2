"""YamlDocument: a YAML file as plain data, each value with its line and column.

Only text, numbers, dates, lists and mappings are taken. ``${NAME}`` stands for a variable of the
environment; what it stands for is never read as YAML, except that a plain ``${NAME}`` may become a
number or a boolean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from txtopo.errors import TopologyError

if TYPE_CHECKING:
    from yaml import SafeLoader
    from yaml.nodes import Node

# A file has some hundred nodes. Anchors that repeat each other could stand for billions.
NODES_MAX = 100_000

DEPTH_MAX = 50
"""How deep values may stand in each other; those of a topology do by about ten."""

_PLAIN_TAGS = frozenset({"map", "seq", "str", "int", "float", "bool", "null", "timestamp"})
_STANDARD = "tag:yaml.org,2002:"

# $${NAME} stands for ${NAME} itself.
_VARIABLE = re.compile(
    r"\$(?P<escaped>\$(?=\{))|\$\{(?P<name>[^}:]*)(?P<default>:-[^}]*)?(?P<end>\}?)"
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


Value: TypeAlias = Any
"""What a node holds: a mapping of :class:`Item`, a list of items, or a plain value."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value of the file, and where it stands.

    Attributes:
        value: A mapping from keys to items, a list of items, or a plain value.
        line: Its line, from 1.
        column: Its column, from 1.
    """

    value: Value
    line: int
    column: int


class YamlDocument:
    """Reads the text of a file into items, with the values of variables."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self._environment = environment
        self._nodes = 0

    def parsed(self, text: bytes) -> Item:
        """Return the parsed contents of the file.

        Raises:
            TopologyError: It is not YAML, or has something that is refused.
        """
        import yaml

        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            got = ", ".join(filter(None, (error.context, error.problem)))
            raise self.error(place, f"this is not YAML; got {got}; expected YAML 1.1") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise self.error(
                (1, 1), f"this is not YAML; got {error}; expected YAML in UTF-8"
            ) from error
        except RecursionError as error:
            raise self._too_deep((1, 1)) from error
        if node is None:
            raise self.error((1, 1), "the file is empty; expected a mapping with the key topology")
        return self._item(loader, node, ())

    def error(self, place: Item | tuple[int, int], problem: str) -> TopologyError:
        """Return an error that names the place."""
        line, column = (place.line, place.column) if isinstance(place, Item) else place
        return TopologyError(
            f"{self.name}, line {line}, column {column}: {problem}",
            path=self.name,
            line=line,
            column=column,
        )

    def _too_deep(self, place: tuple[int, int]) -> TopologyError:
        return self.error(
            place, f"values are nested too deeply; expected at most {DEPTH_MAX} levels"
        )

    def _item(self, loader: SafeLoader, node: Node, above: tuple[Node, ...]) -> Item:
        import yaml

        place = (node.start_mark.line + 1, node.start_mark.column + 1)
        self._nodes += 1
        if any(node is each for each in above):
            raise self.error(
                place,
                "an anchor contains itself; got an alias inside the value that it refers to; "
                "write the value out",
            )
        if self._nodes > NODES_MAX:
            raise self.error(
                place,
                f"the file expands to too many values; got more than {NODES_MAX}; expected fewer "
                "nested aliases",
            )
        if len(above) >= DEPTH_MAX:
            raise self._too_deep(place)
        tag = node.tag.removeprefix(_STANDARD)
        if tag not in _PLAIN_TAGS:
            raise self.error(
                place,
                f"tags that create other objects are refused; got {tag!r}; expected text, "
                "numbers, lists and mappings; name a class with class:",
            )
        inside = (*above, node)
        match node:
            case yaml.MappingNode():
                return Item(self._mapping(loader, node, inside), *place)
            case yaml.SequenceNode():
                listed = [self._item(loader, each, inside) for each in node.value]
                return Item(listed, *place)
            case _:
                return Item(self._scalar(loader, node, place), *place)

    def _mapping(self, loader: SafeLoader, node: Any, above: tuple[Node, ...]) -> dict[Any, Item]:
        found: dict[Any, Item] = {}
        for key, value in node.value:
            place = (key.start_mark.line + 1, key.start_mark.column + 1)
            if key.tag == f"{_STANDARD}merge":
                raise self.error(
                    place, "merge keys are not supported; got <<; expected keys written out"
                )
            name = self._item(loader, key, above).value
            if isinstance(name, bool) or not isinstance(name, str | int):
                got = f"a key is neither text nor a whole number; got {name!r}"
                raise self.error(place, f"{got}; expected text; put it in quotes")
            if name in found:
                raise self.error(
                    place, f"key {name!r} is used twice; expected it once; delete one of them"
                )
            found[name] = self._item(loader, value, above)
        return found

    def _scalar(self, loader: SafeLoader, node: Any, place: tuple[int, int]) -> object:
        import yaml

        written = node.value
        text = _VARIABLE.sub(lambda found: self._value_of(found, place), written)
        if text != written:
            plain = node.style is None
            tag = loader.resolve(yaml.ScalarNode, text, (plain, not plain))  # type: ignore[no-untyped-call]
            node = yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)
        try:
            return loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, yaml.YAMLError):
            # PyYAML trusts a tag that is written out, such as !!bool.
            # Not what a variable stands for, which may be a password.
            problem = f"a value cannot be read; got {written!r}; put text in quotes"
            raise self.error(place, problem) from None

    def _value_of(self, found: re.Match[str], place: tuple[int, int]) -> str:
        if found["escaped"]:
            return "$"
        name, default = found["name"], found["default"]
        if not found["end"] or not _VARIABLE_NAME.fullmatch(name):
            raise self.error(
                place,
                f"a variable cannot be read; got {found[0]!r}; expected ${{NAME}} or "
                "${NAME:-default}; write $${ for ${ itself",
            )
        value = self._environment.get(name)
        if value:
            return value
        if default is None:
            state = "is empty" if value == "" else "is not set"
            raise self.error(
                place,
                f"environment variable {name} {state}; expected a value; set it, or write "
                f"${{{name}:-default}}",
            )
        return default.removeprefix(":-")
