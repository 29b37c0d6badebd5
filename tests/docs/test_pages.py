"""README.md and the pages of docs/ do what they show."""
import re

import pytest

from support.pages import ROOT, Block, Reader, blocks_of, matches, shown_in
from support.sse_server import StandIn
from support.vllm_cpu import DATA, SERVER, bring, write_study

DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [*(DOCS / name for name in ("index.md", "tutorial.md", "theory.md", "coming_from.md")),
         *sorted(DOCS.glob("howto/*.md"))]
GUIDES = [README, *sorted(DOCS.glob("guide/*.md"))]        # whose blocks need nothing of each other
GUIDE_BLOCKS = [block for page in GUIDES for block in blocks_of(page.read_text())
                if block.language == "console" and shown_in(block.text)]

QUOTING = [page for page in [*PAGES, *GUIDES] if any(shown_in(block.text) for block in blocks_of(page.read_text()))]
VERSIONS = {"0.10", "0.32", "0.33", "3.11"}                # of vLLM and Python, which pages name without an output


def told(differences):
    """Return differences as people read them."""
    return "\n".join(f"at character {place}, shown:\n{shown}\nprinted:\n{printed}"
                     for place, shown, printed in differences)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")         # the width of help
    return Reader(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "tutorial.md"],
                         ids=lambda path: path.relative_to(DOCS).as_posix())
def test_page_does_what_it_shows(page, reader):
    assert not told(reader.differences(page.read_text()))


@pytest.mark.ci
@pytest.mark.slow
def test_tutorial_does_what_it_shows(tmp_path):
    pytest.importorskip("aiohttp", reason="`observe` needs the extra `observe`")
    # --force: a machine that is busy with other tests sends late, which the page warns of
    with StandIn(ttft_s=0.8, tpot_s=0.02, models={"Qwen/Qwen2.5-0.5B": 4096}) as server:
        stand_ins = {"http://localhost:8000": server.url, "calibrate fit.toml": "calibrate fit.toml --force"}
        differences = told(Reader(tmp_path, stand_ins).differences((DOCS / "tutorial.md").read_text()))

    assert not differences
    assert len(server.asked) == 60


@pytest.mark.slow
@pytest.mark.parametrize("block", GUIDE_BLOCKS, ids=lambda block: shown_in(block.text)[0].command[20:])
def test_guides_do_what_they_show(block, reader, tmp_path):
    if "calibrate.toml" in block.text:
        if not DATA.is_dir():
            pytest.skip("needs ../shared/data/measured_vllm_cpu")
        bring(tmp_path, SERVER + "base_us = 1\nper_sequence_us = 0\nper_prefill_token_us = 0\n")
        write_study(tmp_path / "calibrate.toml")
    assert not told(reader.differences(f"```console\n{block.text}```\n"))


@pytest.mark.parametrize("page", QUOTING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_quotes_what_blocks_show(page):
    """A figure with two decimals beside blocks whose output is compared is a number of a block."""
    content = page.read_text()
    shown = [block.text for block in blocks_of(content)]
    prose = re.sub(r"^```.*?^```$|^\|.*?$|`[^`\n]*`", "", content, flags=re.MULTILINE | re.DOTALL)
    figures = set(re.findall(r"(?<![\w.])\d[\d,]*\.\d{2,3}(?![\w.])", prose))

    assert figures <= set(re.findall(r"[\d,]*\d\.\d+", " ".join(shown))) | VERSIONS


def test_guides_show_answers_of_each_kind():
    commands = {word for block in GUIDE_BLOCKS for shown in shown_in(block.text) for word in shown.command.split()[3:4]}

    assert {"sweep", "fit", "capacity", "tune"} <= commands


def test_a_page_is_read_as_its_table_says(tmp_path):
    page = ("```toml\n# a/b.toml\nx = 1\n```\n```python\nn = 6\n```\n```pycon\n>>> n * 7\n4...\n>>> n\n7\n```\n"
            "```console\nlisted, not run\n```\n"
            "```console\n$ cat b.toml \\\n    | tail -1\nx = ...\n$ false\n$ echo $?\n1\n```\n"
            "```bash\nexit 1\n```\n").replace("a/b.toml", "b.toml")

    (difference,) = Reader(tmp_path).differences(page)

    assert "Expected:\n    7\nGot:\n    6\n" in difference[2]
    assert blocks_of(page)[0] == Block("toml", "# b.toml\nx = 1\n", 8)


def test_what_a_command_prints_is_compared(tmp_path):
    page = "```console\n$ echo one\ntwo\n$ python -m simulator lst\n$ echo $?\n0\n```\n"

    differences = list(Reader(tmp_path).differences(page))

    assert [(shown, printed) for _, shown, printed in differences] == [
        ("two\n", "one\n"),
        ("", 'simulator: no command and no file "lst"; did you mean list?\n'), ("0\n", "2\n")]


@pytest.mark.parametrize(("shown", "printed", "match"), [
    ("a\n", "a\n", True), ("a\n", "a\nb\n", False), ("a\n...\n", "a\nb\nc\n", True), ("a\n...\n", "a\n", True),
    ("a ... c\n", "a b c\n", True), ("a ... c\n", "a\nc\n", False), ("1.5\n", "135\n", False)])
def test_three_points_stand_for_anything(shown, printed, match):
    assert matches(shown, printed) == match


def test_tests_that_the_theory_names_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / "theory.md").read_text())

    assert len(named) > 20
    assert not [(file, name) for file, name in named if f"\ndef {name}(" not in (ROOT / file).read_text()]
