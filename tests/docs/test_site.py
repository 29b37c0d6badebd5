"""The site builds without a warning, and reads well without being built."""
import re

import pytest
import tomli

from support.pages import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))


@pytest.mark.slow
def test_site_builds_without_a_warning(site):
    folder = site.folder
    assert not site.warnings
    built = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.html")}
    own = [*PAGES, *DOCS.glob("notebooks/*.py")]
    assert {page.relative_to(DOCS).with_suffix("").as_posix() for page in own} - built == {"README"}
    assert "jupytext" not in (folder / "notebooks/chunks_and_users.html").read_text().partition("<h1>")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if target.startswith("https://"):
            continue
        file, _, heading = target.partition("#")
        path = page.parent / file if file else page
        assert path.is_file(), target
        assert DOCS in path.resolve().parents, f"{target}: the site holds docs/ alone; name other files in backquotes"
        assert not heading or heading in anchors(path.read_text()), target


def anchors(text):
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`((?:configs|simulator|tests|tools|bench|docs|hardware|models)/[\w./-]+)`", page.read_text())

    assert not [path for path in named if not (ROOT / path).exists()]


def test_extras_that_pages_name_exist():
    extras = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = "".join(page.read_text() for page in [*PAGES, ROOT / "README.md"])
    named = {extra for found in re.findall(r"(?:simulator|\.)\[([\w,]+)\]'", text) for extra in found.split(",")}

    assert "docs" in named
    assert named <= extras.keys()


def test_every_page_is_reached_from_the_front_page():
    reached, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([\w/.-]+\.(?:md|py))", page.read_text()) if page.suffix == ".md" else []
        left += [(page.parent / target).resolve() for target in targets]

    own = set(PAGES) | set(DOCS.glob("notebooks/*.py"))
    assert own - reached == {DOCS / "README.md"}


def test_links_of_the_readme_lead_somewhere():
    targets = [target.partition("#")[::2] for target in re.findall(r"\]\((docs/[^)]+)\)",
                                                                   (ROOT / "README.md").read_text())]

    assert len(targets) >= 8
    assert not [file for file, _ in targets if not (ROOT / file).is_file()]
    assert not [heading for file, heading in targets if heading and heading not in anchors((ROOT / file).read_text())]


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_bytes()) <= 8192


def test_the_readme_quotes_the_scores():
    scores = (DOCS / "accuracy.md").read_text().splitlines()
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| [\w, ]+ \| [\w() ]+ \| (?:TTFT|TPOT) \| .*\|$", readme, re.MULTILINE)

    assert len(rows) == 10
    assert not [row for row in rows if row not in scores]
