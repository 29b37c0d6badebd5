"""Files and folders may have any name: blanks, brackets, quotes, any letter, a leading dash; but no line breaks."""
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import tomli_w
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import simulator
from simulator import cli
from simulator.core.paths import shell_word
from simulator.domain import facts
from support.studies import EXPERIMENT

WILD = """-a b[c]{d} 'e' "f" \u00e9\u65e5\u672c#%$(x)&;!`~^=,@+<b>*?\\|"""
LETTERS = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/\0")
NAMES = st.text(LETTERS, min_size=1, max_size=30).filter(
    lambda name: name not in (".", "..") and len(os.fsencode(name)) < 200)
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n1,30,4\n"
ASKED = {
    "sweep": '[study.axes]\n"engine.max_num_seqs" = [2, 8]\n',
    "tune": '[study.objectives]\noutput_throughput = "max"\n[study.axes]\n"engine.max_num_seqs" = [2, 8]\n',
    "capacity": 'max_seeds = 3\nrel_tol = 0.5\nto = 40\n[study.statistics]\nmin_tail = 1\n[study.slo]\n'
                '"ttft_ms.mean" = {max = 50.0}\nbacklog = "any"\n'}


def written(folder, name):
    """Write an experiment, its trace and facts, a comparison and studies, all so called; return their folder."""
    place = folder / name
    place.mkdir()
    own = {"model": {"name": f"./{name}.model.toml"}, "hardware": {"name": f"./{name}.hardware.toml"}}
    for kind, shipped in (("model", "llama-3.1-8b"), ("hardware", "h100-sxm-80gb")):
        (place / f"{name}.{kind}.toml").write_text(facts.path_of(kind, shipped).read_text())
    (place / f"{name}.csv").write_text(TRACE)
    (place / f"{name}.toml").write_text(EXPERIMENT + tomli_w.dumps(own))
    trace = {"extends": f"{name}.toml", "workload": {"type": "trace", "path": f"{name}.csv"}}
    (place / f"{name}.trace.toml").write_text(tomli_w.dumps(trace))
    (place / f"{name}.compare.toml").write_text(tomli_w.dumps(
        {"base": f"{name}.toml", "variants": [{"name": "a"}, {"name": "b", "engine": {"max_num_seqs": 2}}]}))
    for kind, asked in ASKED.items():
        (place / f"{name}.{kind}.toml").write_text(
            f'{tomli_w.dumps({"extends": f"{name}.toml"})}[study]\nkind = "{kind}"\n{asked}')
    return place


@pytest.mark.ci
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES)
@example(WILD)
@example(".")
@example("~")
@example("-")
@example("a.toml")
def test_experiment_trace_facts_and_results_may_be_called_so(tmp_path_factory, name):
    if name == ".":
        name = ".dot"
    place = written(tmp_path_factory.mktemp("wild"), name)

    assert cli.main(["validate", f"{place}/{name}.toml"]) == 0
    assert cli.main(["run", f"{place}/{name}.trace.toml", "--quiet", "--out", f"{place}/{name}.results"]) == 0
    assert simulator.load_results(place / f"{name}.results").summary["requests"]["completed"] == 2
    assert cli.main(["workload", f"{place}/{name}.trace.toml", "--out", f"{place}/{name}.again.csv"]) == 0
    assert cli.main(["validate", f"{place}/{name}.sweep.toml"]) == 0


COMMANDS = """
run .toml --out .run --report
run .trace.toml
.toml
predict .toml --prefill 12
compare .compare.toml --out .compared
sweep .sweep.toml --out .swept --report --keep all
study merge .swept
study check .swept
study table .swept
sweep .sweep.toml
capacity .capacity.toml --out .cap --report
tune .tune.toml --out .tuned --report
validate .compare.toml
report .run
report .cap
report .run --out .html
report .run --format png --out .png
report .swept --out .study.html
export .run --as csv --out .csv.tables
export .run --as vidur --out .vidur
export .toml --as vllm --out .servers
run .run/resolved.toml --out .resolved
describe model .model.toml
describe hardware .hardware.toml
profile-layers .model.toml .hardware.toml --out .layers --lengths 64 --batch-sizes 1
profile-operators .model.toml .hardware.toml --out .tables --tokens 64 --batch-sizes 1 --contexts 128
example quickstart --to .example
"""


@pytest.mark.ci
@pytest.mark.slow
def test_every_command_takes_wild_names(wild, monkeypatch, capsys):
    monkeypatch.chdir(wild)
    for number, command in enumerate(COMMANDS.strip().splitlines()):
        words = [f"./{WILD}{word}" if word.startswith(".") else word for word in command.split()]
        # the first as a process, that names come as the system passes them
        status = cli.main(words) if number else subprocess.run([sys.executable, "-m", "simulator", *words],
                                                               check=False).returncode
        assert status == 0, f"{command}: {capsys.readouterr().err}"


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    return written(tmp_path_factory.mktemp("wild"), WILD)


def test_name_of_a_file_in_a_report_is_no_markup(wild, capsys):
    pytest.importorskip("matplotlib", reason="reports come with the extra `report`")
    assert cli.main(["run", f"{wild}/{WILD}.toml", "--out", f"{wild}/{WILD}<img src=x>", "--report", "--quiet"]) == 0
    page = (wild / f"{WILD}<img src=x>/report.html").read_text()
    assert "<img src=x>" not in page and f"{WILD}</" not in page


def test_results_are_named_after_the_file_as_far_as_a_name_goes(tmp_path, monkeypatch, capsys):
    """`a [b].toml` was refused: a name has no brackets."""
    monkeypatch.chdir(tmp_path)
    for file, name in (("a [b].toml", "a _b_"), ("-x.toml", "_-x"), ("\u00e9.toml", "\u00e9"), (".toml", "_")):
        (tmp_path / file).write_text(EXPERIMENT)
        assert cli.main(["run", f"./{file}", "--quiet"]) == 0
        assert json.loads((tmp_path / "results" / name / "summary.json").read_text())["name"] == name


@pytest.mark.parametrize("command", [
    ["run", "a\nb.toml"], ["run", "a.toml", "--out", "a\nb"], ["sweep", "a.toml", "--out", "a\rb"],
    ["report", "a\x1b[2J"],
    ["export", "a\nb", "--as", "csv"], ["validate", "a.toml", "--set", "workload={type='trace', path='a\\nb.csv'}"],
    ["validate", "a.toml", "--set", 'workload={type="trace", path="a\\nb.csv"}'],
    ["validate", "a.toml", "--set", 'hardware.name="./a\\nb.toml"']])
def test_line_breaks_in_names_are_refused(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    status, told = cli.main(command), capsys.readouterr().err
    if "path='a\\nb.csv'" in command[-1]:                  # a literal text of TOML: a backslash and an n
        assert "no such file" in told.lower() or "cannot" in told.lower()
    else:
        assert "a line break or another control character in a name" in told
    assert status == 2 and len(told.splitlines()) == 1 and not told.strip("\n").count("\x1b")


@given(NAMES)
@example(WILD)
def test_a_path_in_a_command_is_one_word_and_no_option(name):
    (word,) = shlex.split(shell_word(name))
    assert word in (name, f"./{name}") and not word.startswith("-")


def test_commands_that_are_shown_can_be_copied(wild, capsys):
    assert cli.main(["sweep", f"{wild}/{WILD}.sweep.toml", "--out", f"{wild}/{WILD}.shards", "--shard", "0/1"]) == 0
    shown = next(line for line in capsys.readouterr().out.splitlines() if "study merge" in line)
    command = shlex.split(shown.partition("; `")[2].removesuffix("` makes its tables").removeprefix("simulator "))
    assert cli.main(command) == 0 and (wild / f"{WILD}.shards/table.csv").exists()


PLAN = ["plan", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--input", "10", "--output", "10", "--ttft-p99", "500"]


@pytest.mark.parametrize("command", ["run", "compare", *ASKED, "plan", "serve", "workload"])
@pytest.mark.parametrize(("place", "why"), [
    ("a_file", "exist|is no directory"), ("a_file/below", "director"), ("x" * 300, "too long"),
    ("", "expected a path, found an empty text")])
def test_places_of_results_that_cannot_be_are_no_fault_of_the_program(tmp_path, capsys, command, place, why):
    file = {"run": "n.toml", "serve": "n.toml", "workload": "n.toml"}.get(command, f"n.{command}.toml")
    words = PLAN if command == "plan" else [command, str(written(tmp_path, "n") / file)]
    (tmp_path / "a_file").write_text("kept")
    assert cli.main([*words, "--out", place and str(tmp_path / place)]) == 2
    said = capsys.readouterr()
    assert re.search(why, said.err.lower()) and "fault of the program" not in said.err and said.out == ""
    assert (tmp_path / "a_file").read_text() == "kept"
