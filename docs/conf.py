"""How Sphinx builds the site: `python -m sphinx -W --keep-going -b html docs build/docs`."""
import re

import jupytext
from myst_parser.parsers.sphinx_ import MystParser

import simulator

FRONT = ("index", "reference/README")

project = "simulator"
release = version = simulator.__version__
extensions = ["myst_parser"]
exclude_patterns = ["conf.py", "README.md", "**/.*"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme, html_theme_path, html_static_path = "_theme", ["."], ["_theme/custom.css"]
html_theme_options = {"description": "LLM inference serving, simulated", "page_width": "899px",    # see custom.css
                      "body_max_width": "auto", "sidebar_width": "250px", "font_size": "15px", "fixed_sidebar": True}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_show_sourcelink = False
suppress_warnings = ["misc.highlighting_failure"]       # `...` marks text left out of a file


class Notebook(MystParser):
    """Read a Python script in jupytext's percent format as a page: text as it is, cells as code."""

    supported = ("percent",)

    def parse(self, inputstring, document):
        """Parse the script as the Markdown that jupytext makes of it."""
        notebook = jupytext.reads(inputstring, fmt="py:percent")
        notebook.metadata.clear()
        page = jupytext.writes(notebook, fmt={"extension": ".md", "notebook_metadata_filter": "-all"})
        super().parse(page, document)


def with_contents(app, page, source):
    """Give the front pages a table of contents: the pages they link to, in that order.

    Written out in Markdown it would be a block of code to readers of the repository.
    """
    if page in FRONT:
        links = dict.fromkeys(re.findall(r"\]\(([\w/]+)\.(?:md|py)\)", source[0]))
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(links) + "\n```\n"


def setup(app):
    """Let notebooks be pages, and front pages know theirs."""
    app.add_source_suffix(".py", "percent")
    app.add_source_parser(Notebook)
    app.connect("source-read", with_contents)
    return {"parallel_read_safe": True}
