"""The site: Sphinx makes it of these pages and of the docstrings of public names; ``make docs``.

It needs no network: inventories of other projects would, so names of theirs are not linked.

Pictures (SVG) become part of the page: those in files cannot know that a reader has switched the
page to dark.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]  # its stubs would be a package more
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import txtopo

project = "txtopo"
version = release = txtopo.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nitpicky = True
# Annotations also name classes of other libraries and private ones; napoleon takes types apart.
nitpick_ignore_regex = [("py:(class|data)", r"[\w.\[]+"), ("py:mod", r"txtopo\..*")]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "special-members": "__call__"}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
maximum_signature_line_length = 120
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"txtopo {version}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pictures.css"]

PAGE = re.compile(r"``docs/([\w/-]+)\.md``")


def setup(app: Sphinx) -> None:
    """Let docstrings lead to pages and to public names."""
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("missing-reference", public_name)
    app.connect("doctree-resolved", inline_pictures)


def inline_pictures(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """Put the text of each picture in place of the element that would fetch its file."""
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"])
        if path.suffix == ".svg":
            html = f'<div class="picture">{path.read_text()}</div>'
            image.replace_self(nodes.raw("", html, format="html"))


def link_pages(
    app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Make links of the pages that a docstring names."""
    lines[:] = [PAGE.sub(r":doc:`/\1`", line) for line in lines]


def public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: Any
) -> object | None:
    """Lead to the public name of what a docstring names as its own module does."""
    module, _, last = str(node.get("reftarget", "")).rpartition(".")
    if node.get("refdomain") != "py" or not (module + ".").startswith(("txtopo.", ".")):
        return None
    domain = env.domains.python_domain
    found = [
        name
        for name, entry in domain.objects.items()
        if name.endswith(f".{last}") and not entry.aliased
    ]
    if len(found) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, content)
