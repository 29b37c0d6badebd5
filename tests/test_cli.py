"""What people type, what they read, and the exit status."""
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tomli

from simulator import cli
from simulator.errors import InputErrors

CONFIGS = Path(__file__).parents[1] / "configs"
LINEAR = str(CONFIGS / "linear.toml")
EXPERIMENTS = sorted(CONFIGS.glob("*.toml"), key=lambda path: path.name)


@pytest.fixture
def run_experiment(monkeypatch):
    """Replace what runs an experiment; `calls` holds what it was asked for, `answer` is what it does."""
    stand_in = types.ModuleType("simulator.api")
    stand_in.calls, stand_in.interrupted_by = [], None

    def run(experiment, out, overwrite, quiet, main_began_s):
        stand_in.calls.append((experiment.name, experiment.seed, out, overwrite, quiet))
        if isinstance(stand_in.interrupted_by, BaseException):
            raise stand_in.interrupted_by
        return types.SimpleNamespace(summary={}, directory=out, interrupted_by=stand_in.interrupted_by)

    stand_in.run_experiment = run
    results = types.ModuleType("simulator.results")
    results.summary_table = lambda summary: "THE TABLE"
    monkeypatch.setitem(sys.modules, "simulator.api", stand_in)
    monkeypatch.setitem(sys.modules, "simulator.results", results)
    return stand_in


def test_run_is_what_a_file_name_alone_means(run_experiment, capsys):
    assert cli.main([LINEAR]) == cli.main(["run", LINEAR]) == 0
    assert run_experiment.calls == [("linear", 1, "results/linear", False, False)] * 2
    assert capsys.readouterr().out == "THE TABLE\n\nresults in results/linear\n" * 2


def test_options_of_run_reach_the_run(run_experiment, capsys):
    status = cli.main(["--quiet", "--out", "there", LINEAR, "--set", "seed=7", "--overwrite", "--set=name=other"])
    assert status == 0
    assert run_experiment.calls == [("other", 7, "there", True, True)]
    assert capsys.readouterr().out == ""


def test_results_go_where_the_experiment_says(run_experiment, tmp_path):
    assert cli.main([LINEAR, "--set", f"output.directory={tmp_path}/x"]) == 0
    assert run_experiment.calls[0][2] == f"{tmp_path}/x"


@pytest.mark.parametrize(("interrupted_by", "status"), [(None, 0), (2, 130), (15, 143), (KeyboardInterrupt(), 130)])
def test_interrupted_run_exits_with_128_and_the_signal(run_experiment, interrupted_by, status):
    run_experiment.interrupted_by = interrupted_by
    assert cli.main([LINEAR]) == status


def test_faults_of_the_input_exit_with_2_one_a_line(run_experiment, capsys):
    assert cli.main([LINEAR, "--set", "engine.max_num_seq=3", "--set", "seed=-1"]) == 2
    assert capsys.readouterr() == ("", (
        "--set: seed: expected an integer from 0 to 9223372036854775807, found -1\n"
        "--set: engine.max_num_seq: unknown key; did you mean max_num_seqs?\n"))
    assert run_experiment.calls == []


def test_faults_found_while_running_exit_with_2(run_experiment, capsys):
    run_experiment.interrupted_by = InputErrors(["t.csv:3: a: bad", "t.csv:4: a: bad"])
    assert cli.main([LINEAR]) == 2
    assert capsys.readouterr().err == "t.csv:3: a: bad\nt.csv:4: a: bad\n"


def test_fault_of_the_program_exits_with_1_and_says_how_to_report_it(run_experiment, capsys, monkeypatch):
    run_experiment.interrupted_by = ZeroDivisionError("division\nby zero")
    monkeypatch.delenv("SIM_TRACEBACK", raising=False)
    assert cli.main([LINEAR]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "simulator: a fault of the program: ZeroDivisionError: division by zero"
    assert "CONTRIBUTING.md" in second

    monkeypatch.setenv("SIM_TRACEBACK", "1")
    assert cli.main([LINEAR]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ["run"], ["run", "a", "b"], ["describe", "model"], ["list", "--x"], [LINEAR, "--outt", "x"]])
def test_wrong_command_line_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: simulator" in capsys.readouterr().err


def test_no_arguments_show_the_usage(capsys):
    assert cli.main([]) == 2
    assert capsys.readouterr().err.startswith("usage: simulator")


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.name)
def test_shipped_config_opens_with_what_it_shows_and_is_valid(config, capsys, tmp_path):
    assert config.read_text().startswith("# ")
    trace = tmp_path / "trace.csv"          # the trace of azure_conv.toml is its reader's to fetch
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    its_trace = ["--set", f"workload.path={trace}"] if config.stem == "azure_conv" else []
    assert cli.main(["validate", str(config), *its_trace]) == 0
    assert tomli.loads(capsys.readouterr().out)["name"] == config.stem


def test_list_and_describe_and_schema_print(capsys):
    assert cli.main(["list", "latency", "backends"]) == 0
    assert capsys.readouterr().out == "linear\nroofline\n"
    assert cli.main(["describe", "latency", "backend", "linear"]) == 0
    assert "base_us" in capsys.readouterr().out
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out.startswith('{\n  "$schema"')
    assert cli.main(["describe", "router", "nearest"]) == 2
    assert capsys.readouterr().err == 'no router "nearest"; valid: round_robin\n'


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=CONFIGS.parent, **options)


def test_validate_starts_without_what_only_a_run_needs():
    done = python("-X", "importtime", "-m", "simulator", "validate", "configs/linear.toml")
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"h5py", "tqdm", "simulator.api"}


def test_reading_an_experiment_needs_no_numpy_itself():
    done = python("-c", "import sys, simulator.cli, simulator.config.load; print('numpy' in sys.modules)")
    assert done.stdout == "False\n"


def test_reader_that_closes_early_is_no_fault():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "simulator", "schema"], stdout=writing, stderr=subprocess.PIPE,
                          cwd=CONFIGS.parent)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
