"""What docs/coming_from.md names as ours exists: keys and their values, tables, figures, columns, commands."""
import argparse
import re
from functools import cache

import pytest

from simulator import cli
from simulator.config import describe
from simulator.config.experiment import Experiment
from simulator.config.fields import table_of
from simulator.config.keys import keys
from simulator.domain.columns import TABLES
from simulator.results.summary_keys import DISTRIBUTION, STATISTICS, described
from simulator.study.capacity.capacity_table import CapacityTable
from simulator.study.tuning.tune_table import TuneTable
from support.pages import PROGRAM, ROOT

PAGE = (ROOT / "docs/coming_from.md").read_text()
ROWS = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in PAGE.splitlines()
        if line.startswith("|") and not line.startswith("|---")]
HERE = sorted({found for row in ROWS if row[1] != "here" for found in re.findall(r"`([^`]+)`", row[1])})
DIFFERS = sorted({found for row in ROWS for found in re.findall(r"`([^`]+)`", row[2])
                  if re.match(r"--as|\[|[a-z_]+\.(?!txt|json)[a-z_.]+( =|$)", found)})


@cache
def tables():
    return {title for _, title, _ in describe.tables_of(Experiment)}


@cache
def experiment_keys():
    """Return what each key of an experiment allows, to whoever reads it."""
    allowed = {}
    for key in keys():
        allowed.setdefault(key.name, set()).add(describe.cells_of(key.field)[0])
    return allowed


@cache
def study_keys():
    return {f"study.{row[0]}": {row[1]} for struct in (CapacityTable, TuneTable) for field in table_of(struct).fields
            for row in describe.rows_of(field)}


def commands(parser, before=""):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield before + name
                yield from commands(command, f"{before}{name} ")


def is_value(name, value):
    allowed = experiment_keys().get(name) or study_keys().get(name, ())
    return any(value in text for text in allowed)


def exists(words):
    """Say whether a word of ours is one."""
    if words.startswith(PROGRAM):
        return words.removeprefix(PROGRAM) in set(commands(cli.parser_of(*cli.STUDIES)))
    if words.startswith("--as "):
        return words.removeprefix("--as ") in cli.parser_of("export").parse_args(
            ["export", "results", "--as", words.removeprefix("--as ")]).format
    if words.startswith("/"):
        table, _, column = words[1:].partition(".")
        return column in TABLES[table]
    if words.startswith("["):
        name = words.strip("[]")
        return words in tables() or f"[{name}.NAME]" in tables() or name in experiment_keys()
    name, _, value = words.partition(" = ")
    if value:
        return is_value(name, value)
    return name in experiment_keys() or name in study_keys() or is_figure(name)


def is_figure(name):
    path, _, statistic = name.rpartition(".")
    whole, part = described(name), described(path)
    return whole is not None or (
        statistic in STATISTICS and part is not None and part.text.startswith(DISTRIBUTION))


@pytest.mark.parametrize("words", HERE)
def test_what_is_named_as_ours_exists(words):
    assert exists(words)


@pytest.mark.parametrize("words", DIFFERS)
def test_what_is_named_as_ours_in_remarks_exists(words):
    assert exists(words)


@pytest.mark.parametrize("words", [
    "engine.max_num_sequences", "[engin]", 'engine.scheduler = "vlm"', "ttft_ms.p42", "/requests.arrival", "ttfb_ms",
    "python -m simulator bensch"])
def test_what_does_not_exist_is_found_out(words):
    assert not exists(words)


def test_each_system_has_a_table():
    assert re.findall(r"^## (\w+)", PAGE, re.MULTILINE) == ["vLLM", "Vidur", "BLIS", "AISimulate", "SimAI", "Llumnix"]
    assert all(len(row) == 3 for row in ROWS)
