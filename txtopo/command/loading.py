"""load_topology: what ``module:attribute``, ``file.py:attribute`` or ``file.yaml`` names."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from txtopo.builders import (
    ReliableTopology,
    Topology,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    topology_from_yaml,
)
from txtopo.errors import TopologyError, TxtopoError, nearest, text_of
from txtopo.stages.pickling import by_value
from txtopo.uncaught import is_users

Builders = TransactionalTopologyBuilder | TopologyBuilder

EXPECTED = "module:attribute, file.py:attribute, or file.yaml"


def load_topology(place: str, modules: Sequence[str] = ()) -> Topology | ReliableTopology:
    """Return the topology that a command line names.

    The current folder can be imported from, and the folder of a file. Classes of a file are sent to
    workers by value, as with ``python file.py``; workers must be able to import the classes of a
    module.

    Args:
        place: ``module:attribute`` or ``file.py:attribute``. The attribute is a topology, or a
            function that returns one when it is called without arguments. It may be omitted if the
            module has exactly one topology. Or a YAML file, which is one topology.
        modules: Modules whose classes the YAML file may name.

    Raises:
        TopologyError: There is no such topology; the message says what there is.
    """
    name, _, attribute = place.partition(":")
    if name.endswith((".yaml", ".yml")):
        if attribute:
            raise TopologyError(
                f"a YAML file defines a single topology; got {place!r}; expected {name}",
                path=name,
                got=place,
            )
        _add_to_path(Path(name).resolve().parent)
        _add_to_path(Path.cwd())
        return topology_from_yaml(name, modules=modules)
    if modules:
        raise TopologyError(
            f"--module is only for a YAML file; got --module {modules[0]} and {place!r}; remove "
            "the option",
            name=place,
            setting="modules",
        )
    is_file = name.endswith(".py") or os.sep in name
    if not name or (name.startswith(".") and not is_file):
        raise TopologyError(f"{place!r} does not name a module; expected {EXPECTED}", name=place)
    module = _file(Path(name)) if is_file else _module(name)
    found = _attribute(module, name, attribute) if attribute else _only(module, name)
    return _topology(found, place)


def load_transactional(place: str, modules: Sequence[str] = ()) -> Topology:
    """Return the transactional topology that a command line names.

    Raises:
        TopologyError: There is no such topology, or it is an at-least-once one.
    """
    topology = load_topology(place, modules)
    if isinstance(topology, Topology):
        return topology
    raise TopologyError(
        f"{place!r} is an at-least-once topology, which keeps no ledgers; expected a "
        "transactional topology, built with a TransactionalTopologyBuilder",
        name=place,
    )


def check_apart(place: str) -> None:
    """Check that a second program would not get modules of the first one for its own.

    A process has one module of each name. So where the folder of the second program has another
    file of that name, it would run with the code of the first.

    Args:
        place: The second program, as the command line names it.

    Raises:
        TopologyError: It would.
    """
    name = place.partition(":")[0]
    folder = Path(name).resolve().parent
    if not name.endswith(".py") or not folder.is_dir():
        return
    for module, known in [*sys.modules.items()]:
        file = getattr(known, "__file__", None)
        if file is None or not is_users(file):
            continue
        inner = folder.joinpath(*module.split("."))
        for other in (inner.with_suffix(".py"), inner / "__init__.py"):
            if other.is_file() and other.read_bytes() != Path(file).read_bytes():
                raise TopologyError(
                    f"both programs have a module {module!r}, but this process can import only "
                    f"one; got {file} and {other}; expected identical files or different names; "
                    "rename one",
                    module=module,
                    path=str(other),
                )


def _module(name: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise _failed(name, error) from error
        hint = f"; did you mean {name}.py?" if Path(f"{name}.py").exists() else ""
        raise TopologyError(
            f"there is no module {missing!r}; looked in the current folder and in the packages of "
            f"{sys.executable}; expected {EXPECTED}{hint}",
            module=missing,
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise TopologyError(f"{str(path)!r} {what}; expected {EXPECTED}", path=str(path))
    path = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise TopologyError(
            f"{path.name!r} has the name of a module that is already imported; got {path.stem!r}, "
            f"of {getattr(known, '__file__', 'Python itself')}; rename the file",
            path=str(path),
            module=path.stem,
        )
    _add_to_path(Path.cwd())
    _add_to_path(path.parent)
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TopologyError(
            f"{path.name!r} is not a Python file; expected {EXPECTED}", path=str(path)
        )
    module = sys.modules[path.stem] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        raise _failed(path.name, error) from error
    by_value(module)
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _failed(name: str, error: BaseException) -> TopologyError:
    """Return the error for a module whose import raised one."""
    what = f"{type(error).__name__}: {text_of(error)}"
    return TopologyError(f"{name!r} cannot be imported; {what}{_where(error)}", module=name)


def _where(error: BaseException) -> str:
    """Return where in the user's code an error was raised: the innermost line of no library."""
    if isinstance(error, SyntaxError):  # its text says it
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [each for each in frames if is_users(each.filename)]
    return f"; in {mine[-1].filename}, line {mine[-1].lineno}" if mine else ""


def _attribute(module: ModuleType, name: str, attribute: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [*_topologies(module), *_functions(module)]
            raise TopologyError(
                f"{name!r} has no attribute {attribute!r}; {nearest(attribute, known)}",
                module=name,
                name=attribute,
            )
        found = getattr(found, part)
    return found


def _only(module: ModuleType, name: str) -> object:
    topologies = _topologies(module)
    if len({id(each) for each in topologies.values()}) == 1:
        return next(iter(topologies.values()))
    there = f"has {len(topologies)} topologies" if topologies else "has no topology"
    builders = [each for each, value in vars(module).items() if isinstance(value, Builders)]
    if builders and not topologies and not _functions(module):
        raise TopologyError(
            f"{name!r} contains no topology, only a builder; got {builders[0]!r}; expected a line "
            f"such as topology = {builders[0]}.build_topology()",
            module=name,
            got=builders[0],
        )
    names = ", ".join(topologies or _functions(module)) or "none"
    raise TopologyError(
        f"{name!r} {there}, so name the attribute; expected {name}:ATTRIBUTE, a topology or a "
        f"function that returns one; {'topologies' if topologies else 'functions'}: {names}",
        module=name,
    )


def _topologies(module: ModuleType) -> dict[str, object]:
    there = vars(module).items()
    return {name: each for name, each in there if isinstance(each, Topology | ReliableTopology)}


def _functions(module: ModuleType) -> list[str]:
    there = vars(module).items()
    return [
        name
        for name, each in there
        if inspect.isfunction(each)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _topology(found: object, place: str) -> Topology | ReliableTopology:
    if isinstance(found, Topology | ReliableTopology):
        return found
    if callable(found) and not isinstance(found, type):
        returned = _called(found, place)
        if isinstance(returned, Topology | ReliableTopology):
            return returned
        what, found = f"{place!r} returns no topology", returned
    else:
        what = f"{place!r} is not a topology"
    build = ""
    if isinstance(found, Builders):
        build = "; call build_topology() on the builder"
    raise TopologyError(
        f"{what}; got {_kind(found)}; expected what build_topology() returns, or a function that "
        f"returns it{build}",
        name=place,
        got=_kind(found),
    )


def _kind(found: object) -> str:
    if found is None or isinstance(found, type):
        return "None" if found is None else f"the class {found.__name__}"
    return f"an object of {type(found).__name__}"


def _called(function: object, place: str) -> object:
    assert callable(function)
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise TopologyError(
            f"{place!r} cannot be called without arguments: {error}; expected a function without "
            "parameters, or with defaults for all",
            name=place,
        ) from error
    except ValueError:
        pass  # a callable without a signature, of C
    try:
        return function()
    except TxtopoError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {text_of(error)}"
        raise TopologyError(f"{place!r} failed; {what}{_where(error)}", name=place) from error
