"""docs/reference is what the code says now, and says something of everything."""
import argparse
import importlib.util
import re

import pytest

import simulator
import simulator.testing
from simulator import cli, registry
from simulator.results.summary_keys import DISTRIBUTION, STATISTICS, all_keys, described
from support.pages import ROOT

SPEC = importlib.util.spec_from_file_location("reference_pages", ROOT / "tools/reference_pages.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
# Experiments whose summaries have, together, parts of every kind.
SHOWN = ("quickstart", "admission", "andes", "autoscaling", "costs", "deepseek_dp8", "draft_model", "encode_pool",
         "fairness", "agent_programs", "decisions", "hicache", "lora", "prefill_decode", "pools", "kv_retention",
         "retry_storm", "several_gateways", "regions", "fallbacks", "streamed")


@pytest.fixture(scope="module")
def pages():
    return tool.pages()


def test_pages_are_what_the_code_says(pages):
    written = {path.name: path.read_text() for path in tool.FOLDER.iterdir()}

    assert written.keys() == pages.keys()
    written["limitations"] = (tool.FOLDER.parent / "limitations.md").read_text()
    stale = [name for name, text in (pages | {"limitations": tool.limitations()}).items() if written[name] != text]
    assert not stale, "run `python tools/reference_pages.py`"


def test_every_choice_of_the_registry_has_a_section(pages):
    assert {kind for kinds in tool.KINDS.values() for kind in kinds} == set(registry.KINDS)
    for page, kinds in tool.KINDS.items():
        sections = re.findall(r"^### (.+) `(.+)`$", pages[f"{page}.md"], re.MULTILINE)
        assert sections == [
            (registry.KINDS[kind].title, name) for kind in kinds for name in registry.KINDS[kind].entries]


def test_every_command_and_option_is_named(pages):
    page = pages["commands.md"]
    commands = list(tool.commands(cli.parser_of(*cli.STUDIES)))

    assert {name.split()[0] for name, *_ in commands} == {*cli.COMMANDS, *cli.STUDIES}
    for name, command, _ in commands:
        section = page.partition(f" `{name}`\n")[2].partition("\n#")[0]
        missing = [action.option_strings for action in command._actions
                   if action.option_strings and not isinstance(action, argparse._HelpAction)
                   and f"`{', '.join(action.option_strings)}" not in section]
        assert section
        assert not missing, name


def test_the_page_of_python_has_every_public_name(pages):
    page = pages["api.md"]
    names = [f"simulator.{name}" for name in simulator.__all__ if name != "__version__"]
    names += [f"simulator.testing.{name}" for name in simulator.testing.__all__]

    sections = re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    assert [name for name in sections if name.startswith("simulator.")] == names
    members = [name for name in vars(simulator.Result) if not name.startswith("_")]
    assert re.findall(r"^### `Result\.(.+)`$", page, re.MULTILINE) == members
    assert f"API_VERSION = {simulator.API_VERSION}\n" in page
    assert "### `Studied.to_pandas`" in page            # of its base class


def test_a_key_stands_with_unit_default_and_what_it_allows(pages):
    rows = pages["experiment.md"].splitlines()

    assert ("| `engine.allow_long_max_model_len` | true or false | `false` | tokens | "
            "allow a max_model_len above the model's maximum; vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN |") in rows
    assert any(row.startswith("| `workload.load.rate_per_s` | ") and " | 1/s | " in row for row in rows)


def test_pipes_and_brackets_of_words_stay_words():
    assert tool.table(("a",), [("x|y",)]).splitlines() == ["| a |", "| --- |", "| x\\|y |"]
    assert tool.text("models/<name>.toml, `<as code>`, 2 * 3") == r"models/\<name>.toml, `<as code>`, 2 \* 3"
    assert tool.text("[engine] max_num_seqs, _at_ edges, [a](b)") == r"[engine] max_num_seqs, \_at\_ edges, [a\](b)"


def leaves(value, path=""):
    """Yield the path of each value of a summary; a distribution is one."""
    if isinstance(value, dict) and (not value or tuple(value) != STATISTICS):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    elif value or not isinstance(value, list):
        yield path, value


@pytest.mark.parametrize("name", SHOWN)
def test_every_key_of_a_summary_is_described(name):
    found = dict(leaves(simulator.run(ROOT / f"configs/{name}.toml", few(name)).summary))

    assert not [path for path in found if described(path) is None and path not in ("cost.prices", "diagnosis")]
    for path, value in found.items():
        if (column := described(path)) is not None:
            assert column.text.startswith(DISTRIBUTION) == isinstance(value, dict), path


def few(name):
    """Return overrides that make a drawn workload a short one."""
    is_drawn = 'type = "synthetic"' in (ROOT / f"configs/{name}.toml").read_text()
    return {"workload.num_requests": 30, "workload.measure.warmup_s": 0.0} if is_drawn else {}


def test_what_is_described_comes_in_some_summary():
    tops = {path for name in SHOWN
            for path in simulator.run(ROOT / f"configs/{name}.toml", few(name)).summary}
    rare = {"ttfat_ms", "energy", "fitness", "uncertainty", "preemptions_by_cause", "deadlines"}

    assert {path.partition(".")[0].removesuffix("[]") for path in all_keys()} <= tops | rare
