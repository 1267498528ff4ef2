"""Pages, docstrings and comments name only files, modules, classes and functions that exist."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.test_layout import PACKAGES, ROOT, SOURCES, name_of, text_of

DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [
    *DOCS,
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")),
    *(ROOT / f"{name}.md" for name in ("SECURITY", "CODE_OF_CONDUCT")),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "docker")),
]
FILE = re.compile(
    r"(?<![\w/.*<>{}:-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|cfg|toml|patch))(?![\w/*{}<>])"
)
DOTTED = re.compile(r"(?<![\w./-])((?:txtopo|state_backends|tests)(?:\.[A-Za-z_]\w*)+)(?![\w/-])")
ROLE = re.compile(r":(?:mod|class|func|meth|attr|data|exc):`~?\.?([\w.]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
TOCTREE = re.compile(r"^:::\{toctree\}\n(?::.*\n)*\n((?:[\w/*-]+\n)+):::", re.MULTILINE)
OF_USERS = frozenset(
    {
        "count.py",
        "file.py",
        "first.py",
        "my_bolts.py",
        "new_shop.py",
        "orders.py",
        "pages.py",
        "program.py",
        "shop.py",
        "txtopo.toml",
    }
)
"""Files that users have: programs of examples, and the settings."""
NO_MODULES = frozenset({"txtopo.ensembles", "txtopo.state_backends", "txtopo.toml"})
"""The groups of entry points, and a file of users."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield each page, and the docstrings and comments of each file."""
    for page in PAGES:
        yield name_of(page), text_of(page)
    for path in SOURCES:
        yield name_of(path), words_of(path)


@cache
def words_of(path: Path) -> str:
    """Return the docstrings and comments of a file."""
    text = text_of(path)
    found = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        or (token.type == tokenize.STRING and token.string.startswith('"""'))
    ]
    return "\n".join(found)


@cache
def files() -> frozenset[str]:
    """Return each file of the project, with every shorter end of its path."""
    found = [path for folder in ("docs", "docker", ".ci") for path in (ROOT / folder).rglob("*")]
    found += [*SOURCES, *ROOT.iterdir(), *(ROOT / "tests").rglob("*.patch")]
    found += (ROOT / "examples").rglob("*.*")
    ends = (path.relative_to(ROOT).parts for path in found)
    return OF_USERS | {"/".join(parts[at:]) for parts in ends for at in range(len(parts))}


def test_each_file_that_is_named_exists() -> None:
    lost = [
        f"{where} names {name}"
        for where, text in texts()
        for name in FILE.findall(text)
        if where != "docs/proof/power.md"  # it also has the prices of tests that are gone
        if re.sub(r"^(\.{1,2}/)+", "", name) not in files()
    ]

    assert not lost, "\n".join(lost)


def test_each_link_leads_to_a_page_and_to_a_heading_in_it() -> None:
    lost = [
        f"{name_of(page)} links to {target}#{anchor}"
        for page in PAGES
        for target, anchor in LINK.findall(text_of(page))
        if "://" not in target and not leads_somewhere(page, target, anchor)
    ]

    assert not lost, "\n".join(lost)


def leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    """Whether a link of a page leads to a file or folder, and to one of its headings."""
    path = (page.parent / target).resolve() if target else page
    return path.exists() and (not anchor or anchor in anchors_of(path))


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors of a page, as code hosts make them from its headings."""
    titles = [re.sub(r"[^\w\s-]", "", title.lower()) for title in HEADING.findall(text_of(page))]
    return frozenset(title.strip().replace(" ", "-") for title in titles)


def test_the_readme_leads_to_each_page() -> None:
    found, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in found and page in PAGES:
            found.add(page)
            links = LINK.findall(text_of(page))
            waiting += [(page.parent / target).resolve() for target, _ in links if target]
            waiting += in_toctrees(page)

    assert not [name_of(page) for page in DOCS if page not in found]


def in_toctrees(page: Path) -> Iterator[Path]:
    """Yield the pages in the toctrees of a page."""
    for toctree in TOCTREE.findall(text_of(page)):
        for entry in toctree.split():
            yield from page.parent.glob(f"{entry}.md")


def test_each_page_says_first_what_it_is_for() -> None:
    """In prose; a reader whom a search has led there wants to know whether it is the right page."""
    for page in DOCS:
        title, first, *_ = text_of(page).split("\n\n")
        assert title.startswith("# "), name_of(page)
        assert not first.startswith(("#", "|", "```", "*", "<")), name_of(page)


def test_each_module_that_is_named_exists() -> None:
    lost = [
        f"{where} names {name}"
        for where, text in texts()
        for name in DOTTED.findall(text)
        if name not in NO_MODULES and not exists(name)
    ]

    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_role_of_sphinx_leads_somewhere(package: str) -> None:
    lost = [
        f"{name_of(path)} names {name}"
        for path in SOURCES
        if path.is_relative_to(ROOT / package)
        for name in ROLE.findall(words_of(path))
        if not (exists(name) or seen_from(path, name))
    ]

    assert not lost, "\n".join(lost)


@cache
def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:at])
        if path.is_dir() or path.with_suffix(".py").is_file():
            if at == len(parts):
                return True
            if not (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()):
                return False
            return has(imported(".".join(parts[:at])), parts[at:])
    return False


@cache
def imported(name: str) -> ModuleType | None:
    """Return a module, or None without the extra that it needs."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith(PACKAGES):
            raise
        return None


def has(thing: object, names: list[str]) -> bool:
    """Whether an object has an attribute, which has an attribute, and so on."""
    for at, name in enumerate(names):
        if thing is None:
            return True
        if not hasattr(thing, name):
            return at == len(names) - 1 and isinstance(thing, type) and assigned(thing, name)
        thing = getattr(thing, name)
    return True


def assigned(owner: type, name: str) -> bool:
    """Whether a class declares an attribute, or sets it in one of its methods."""
    for each in owner.__mro__:
        module = imported(each.__module__)
        if name in vars(each).get("__annotations__", {}):
            return True
        file = str(getattr(module, "__file__", ""))
        ours = file.startswith(str(ROOT)) and file.endswith(".py")
        if ours and f"self.{name}" in text_of(Path(file)):
            return True
    return False


def seen_from(path: Path, name: str) -> bool:
    """Whether a file defines or imports a name, or one of its classes has it."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    module = imported(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    if has(module, name.split(".")):
        return True
    owners = [each for each in vars(module).values() if isinstance(each, type)]
    return any(has(owner, name.split(".")) for owner in owners) or typed(path, name)


def typed(path: Path, name: str) -> bool:
    """Whether a file imports a name for its types only."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module is not None
        and any(
            (each.asname or each.name) == name.split(".")[0]
            and exists(".".join([node.module, each.name, *name.split(".")[1:]]))
            for each in node.names
        )
        for node in ast.walk(ast.parse(text_of(path)))
    )
