"""Probes: calls in a copy of the tree that note which tests execute the lines of planted bugs.

A bug that changes or deletes a statement has its probe before that statement. One that only adds
lines has probes at the lines around. What is executed at import, such as a constant or a field of a
class, is used by no line that one could name: there every function of the class has a probe, or
every one of the module if it is in no class or in one without functions.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from tests.faults.mutants.patches import Hunk, Patch
from tests.faults.power import hits

PLACE = Path("txtopo", "hits_of_tests.py")
"""Where the copy has :func:`tests.faults.power.hits.hit`."""
IMPORT = f"from {'.'.join(PLACE.with_suffix('').parts)} import hit as _hit"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Body = list[ast.stmt]


def add_probes(root: Path, patches: Iterable[Patch], run: Path) -> None:
    """Put probes for all *patches* into the tree in *root*; they write into the folder *run*."""
    source = Path(hits.__file__).read_text()
    text = source.replace('FOLDER = ""\n', f"FOLDER = {str(run)!r}\n", 1)
    (root / PLACE).write_text(text)
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for patch in patches:
        for hunk in patch.hunks:
            for line in touched(hunk, (root / hunk.path).read_text()):
                lines[hunk.path][line].add(patch.name)
    for path, bugs in lines.items():
        file = root / path
        file.write_text(with_probes(file.read_text(), bugs))


def touched(hunk: Hunk, text: str) -> Iterator[int]:
    """Yield the lines of a file that a hunk changes or deletes, or between which it adds some."""
    first = text[: text.index(hunk.old)].count("\n") + 1
    old, new = hunk.old.split("\n"), hunk.new.split("\n")
    for kind, begin, end, _, _ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind in ("replace", "delete"):
            yield from (first + i for i in range(begin, end) if old[i].strip())
        elif kind == "insert":
            yield from (first + i for i in (begin - 1, begin) if 0 <= i < len(old) - 1)


def with_probes(text: str, bugs: Mapping[int, set[str]]) -> str:
    """Return the source of a module with a probe for each line that has bugs."""
    tree = ast.parse(text)
    places: dict[tuple[int, int], tuple[Body, int, set[str]]] = {}
    for line, names in bugs.items():
        for body, index in places_of(tree, line):
            places.setdefault((id(body), index), (body, index, set()))[2].update(names)
    # The last ones first, so that the others keep their places.
    for body, index, names in sorted(places.values(), key=lambda each: -each[1]):
        body[index:index] = ast.parse(f"_hit({', '.join(map(repr, sorted(names)))})").body
    imported = ast.parse(IMPORT).body
    after = [i for i, each in enumerate(tree.body) if _is_first(each)]
    at = max(after, default=-1) + 1
    tree.body[at:at] = imported
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def places_of(tree: ast.Module, line: int) -> list[tuple[Body, int]]:
    """Return where the probes of a line belong: bodies, and the index of what is to follow."""
    outer: ast.Module | ast.ClassDef = tree
    inside: ast.AST = tree
    found: tuple[Body, int] | None = None
    while True:
        around = [each for each in _statements(inside) if _has_line(each[2], line)]
        if not around:
            return [found] if found else list(_starts(outer)) or list(_starts(tree))
        body, index, statement = around[0]
        if isinstance(statement, Function):
            found = (statement.body, int(ast.get_docstring(statement) is not None))
        elif isinstance(statement, ast.ClassDef) and found is None:
            outer = statement
        elif found is not None:
            found = (body, index)
        inside = statement


def _statements(node: ast.AST) -> Iterator[tuple[Body, int, ast.stmt]]:
    """Yield the statements right below a node, with the body that each is in."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield from ((body, index, each) for index, each in enumerate(body))
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from ((part.body, index, each) for index, each in enumerate(part.body))


def _starts(node: ast.AST) -> Iterator[tuple[Body, int]]:
    for each in ast.walk(node):
        if isinstance(each, Function):
            yield each.body, int(ast.get_docstring(each) is not None)


def _has_line(statement: ast.stmt, line: int) -> bool:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    return first <= line <= (statement.end_lineno or 0)


def _is_first(statement: ast.stmt) -> bool:
    """Whether it must come before other statements: the docstring, or the future."""
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return future or (docstring and statement.lineno == 1)
