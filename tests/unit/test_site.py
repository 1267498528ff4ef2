"""The site of docs: it builds without a warning, and has each page and each public name."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from inspect import isclass
from pathlib import Path
from types import ModuleType

import pytest
from sphinx.util.inventory import InventoryFile

from tests.harness.browser import Browser
from tests.unit.test_exports import PACKAGES
from tests.unit.test_layout import ROOT
from tests.unit.test_references import DOCS
from txtopo import errors
from txtopo.ensemble import nodes

FACES = [
    *(name for name in PACKAGES if name not in ("txtopo.topology", "txtopo.ensemble")),
    *("txtopo.streams", "txtopo.testing", "txtopo.testing.conformance"),
]
"""The modules that users and authors of plug-ins import from."""


# A build takes 20 s of a processor.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as ``make docs`` builds it. A warning, such as of a page in no toctree, fails.

    The theme of Sphinx makes pages of the same texts in two thirds of the time.
    """
    built = tmp_path_factory.mktemp("site")
    strict = ["-W", "--keep-going", "-D", "html_theme=basic", "-d", str(built / "doctrees")]
    return build(ROOT / "docs", built / "html", *strict)


def build(docs: Path, html: Path, *options: str) -> Path:
    """Build a site and return its folder."""
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", *options, str(docs), str(html)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return html


@pytest.mark.integration
def test_the_site_builds_without_a_warning_and_has_each_page(site: Path) -> None:
    built = {str(page.relative_to(site).with_suffix(".md")) for page in site.rglob("*.html")}

    assert {str(page.relative_to(ROOT / "docs")) for page in DOCS} <= built
    assert {"search.md", "genindex.md"} <= built


@pytest.mark.integration
def test_the_site_documents_each_public_name_and_each_error(site: Path) -> None:
    with (site / "objects.inv").open("rb") as file:
        documented = InventoryFile.load(file, "", lambda base, uri: uri)
    names = {name for kind, found in documented.items() if kind != "std:doc" for name in found}

    lost = [
        f"{face}.{name}"
        for face in FACES
        for name in importlib.import_module(face).__all__
        if not aliases(face, name) & names
    ]
    lost += [
        name
        for name, thing in vars(errors).items()
        if isclass(thing) and issubclass(thing, Exception) and f"txtopo.errors.{name}" not in names
    ]

    assert not lost


@pytest.mark.integration
def test_a_picture_is_a_part_of_its_page(site: Path) -> None:
    """A file that the page fetches would stay light when the reader switches the page to dark."""
    fetched = [
        f"{page.relative_to(site)} fetches {name}"
        for page in site.rglob("*.html")
        for name in re.findall(r'<img[^>]* src="([^"]*\.svg)"', page.read_text())
    ]

    assert not fetched
    assert 'class="txtopo-picture"' in (site / "index.html").read_text()


@pytest.mark.integration
def test_a_picture_is_dark_when_the_page_is(tmp_path: Path, chromium: Browser) -> None:
    """On the first page of the site, built without the others, which takes seconds."""
    docs = ROOT / "docs"

    def others(folder: str, names: list[str]) -> list[str]:
        pages = [Path(folder, name) for name in names if name.endswith((".md", ".rst"))]
        return [page.name for page in pages if page != docs / "index.md"]

    first = build(shutil.copytree(docs, tmp_path / "docs", ignore=others), tmp_path / "html")
    for system in (False, True):
        chromium.size(1280, 900, dark=system)
        for theme, dark in (("auto", system), ("light", False), ("dark", True)):
            chromium.open((first / "index.html").as_uri())
            colour = chromium.run(
                f"document.body.dataset.theme = '{theme}';"
                "return getComputedStyle(document.querySelector('.txtopo-picture .card')).fill"
            )

            assert colour == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)"), (system, theme)


def aliases(face: str, name: str) -> set[str]:
    """Return every name of what a face exports: of its own, of other faces, where it is defined."""
    thing = getattr(importlib.import_module(face), name)
    modules: list[ModuleType] = [importlib.import_module(other) for other in FACES]
    same = {f"{module.__name__}.{name}" for module in modules if getattr(module, name, 0) is thing}
    return same | {f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"}


def test_the_page_of_znodes_names_each_node() -> None:
    page = (ROOT / "docs" / "reference" / "znodes-and-tables.md").read_text()
    paths = (nodes.EPOCH, nodes.CURRENT, nodes.BATCHES, nodes.QUARANTINE, nodes.DESIRED)

    for path in (*paths, nodes.COMMANDS, nodes.PUBLISHED, "/leader", nodes.ROOT):
        assert f"`{path}" in page, path
