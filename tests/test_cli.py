"""What people type, what they read, and the exit status."""
import errno
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tomli

import simulator
from simulator import cli
from simulator.errors import InputErrors, OutputError

CONFIGS = Path(__file__).parents[1] / "configs"
LINEAR = str(CONFIGS / "linear.toml")


@pytest.fixture
def run_experiment(monkeypatch):
    """Replace what runs an experiment; `calls` holds what it was asked for, `answer` is what it does."""
    stand_in = types.ModuleType("simulator.api")
    stand_in.calls, stand_in.interrupted_by = [], None

    def run(experiment, out, overwrite, quiet, main_began_s, threads, build):
        stand_in.calls.append((experiment.name, experiment.seed, out, overwrite, quiet))
        if isinstance(stand_in.interrupted_by, BaseException):
            raise stand_in.interrupted_by
        return types.SimpleNamespace(summary={}, directory=out, interrupted_by=stand_in.interrupted_by,
                                     stands_still=False)

    stand_in.run_experiment = run
    results = types.ModuleType("simulator.results")
    results.summary_table = lambda summary: "THE TABLE"
    results.coloured = lambda text, stream: text
    results.notes = lambda summary: ["it stood still"]
    results.aged = lambda summary, today: []
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
    assert capsys.readouterr() == ("", "warning: it stood still\n")      # what must be known comes quietly too


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


@pytest.mark.parametrize(("arguments", "usage"), [
    (["run", LINEAR, "--outt", "x"], "run"), ([LINEAR, "--outt", "x"], "run"), (["fit", LINEAR, "--outt"], "fit"),
    (["sweep", LINEAR, "--vary", "a=1"], "sweep"), (["bench", "serve", LINEAR, "--nothing"], "bench serve"),
    (["list", "--x"], "list"), (["describe", "model"], "describe"), (["schema", "more"], "schema")])
def test_the_usage_of_the_very_command_is_shown(arguments, usage, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)

    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: simulator {usage} [-h]")
    assert f"\nsimulator {usage}: error: " in told


def test_no_arguments_show_the_usage(capsys):
    assert cli.main([]) == 2
    assert capsys.readouterr().err.startswith("usage: simulator")


def test_validate_tells_of_each_pool_and_of_what_only_building_finds(capsys, tmp_path):
    assert cli.main(["validate", str(CONFIGS / "pools.toml")]) == 0
    derived = [line.split(" = ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("# derived")]
    assert derived == [f"# derived: pools.{pool}.engine.{key}" for pool in ("large", "small-h100", "small-l40s")
                       for key in ("max_model_len", "num_gpu_blocks")]

    config = str(CONFIGS / "llumnix_slo.toml")
    assert cli.main(["validate", config, "--set", 'cluster.routing.ttft_profiling_data_path=""']) == 2
    assert capsys.readouterr().err == (
        f"{config}: cluster.routing.ttft_profiling_data_path: missing; predicted_ttft needs it\n")


def test_validate_needs_no_model_beside_those_of_the_pools(capsys, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(f'''workload = {{type = "trace", path = "{CONFIGS / "data/labelled.csv"}"}}
[[pools]]
name = "all"
model.name = "llama-3.1-8b"
hardware.name = "h100-sxm-80gb"
''')
    assert cli.main(["validate", str(path)]) == 0
    assert capsys.readouterr().out.startswith("# derived: pools.all.engine.max_model_len = 131072\n")


def test_list_and_describe_and_schema_print(capsys):
    assert cli.main(["list", "latency", "backends"]) == 0
    assert {"linear", "roofline"} <= set(capsys.readouterr().out.splitlines())
    assert cli.main(["describe", "latency", "backend", "linear"]) == 0
    assert "base_us" in capsys.readouterr().out
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out.startswith('{\n  "$schema"')
    assert cli.main(["describe", "router", "nearest"]) == 2
    assert capsys.readouterr().err.startswith('no router "nearest"; valid: always_busiest, ')


def test_other_backend_can_be_tried_from_the_command_line(capsys):
    model = ["--set", "model.name=llama-3.1-8b", "--set", "hardware.name=h100-sxm-80gb"]
    assert cli.main(["validate", LINEAR, "--set", "latency.backend=roofline", *model]) == 0
    assert tomli.loads(capsys.readouterr().out)["latency"]["backend"] == "roofline"
    assert cli.main(["validate", str(CONFIGS / "quickstart.toml"), "--set", "latency.backend=linear"]) == 0


def test_validate_tells_what_is_derived_beside_the_experiment(capsys):
    assert cli.main(["validate", str(CONFIGS / "quickstart.toml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# derived: engine.max_model_len = 131072"
    assert lines[1].startswith("# derived: engine.num_gpu_blocks = ")
    assert cli.main(["validate", LINEAR]) == 0          # says both itself
    assert "derived" not in capsys.readouterr().out


def test_version_is_told(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"simulator {simulator.__version__}\n"


@pytest.mark.parametrize(("word", "ending"), [
    ("rum", "; did you mean run?"), ("profile-layer", "; did you mean profile-layers?"),
    ("everything", "; --help lists the commands")])
def test_mistyped_command_is_refused_with_the_nearest(word, ending, capsys):
    assert cli.main([word, "x.toml"]) == 2
    assert capsys.readouterr() == ("", f'simulator: no command and no file "{word}"{ending}\n')


def test_file_of_any_name_is_an_experiment(run_experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text(f"extends = '{LINEAR}'")
    assert cli.main(["mine"]) == 0


def test_results_that_cannot_be_written_are_told_in_one_line(run_experiment, capsys):
    run_experiment.interrupted_by = OutputError("results/linear", OSError(errno.ENOSPC, "?"))
    assert cli.main([LINEAR]) == 1
    assert capsys.readouterr().err == "results/linear: cannot be written: No space left on device\n"


def test_error_of_a_users_class_is_no_fault_of_the_program(run_experiment, capsys, monkeypatch):
    monkeypatch.setattr(cli.registry, "blame", lambda error: f'"my:Class", raised {error}')
    run_experiment.interrupted_by = ZeroDivisionError("division by zero")
    assert cli.main([LINEAR]) == 2
    assert capsys.readouterr().err.splitlines()[0] == 'simulator: "my:Class", raised division by zero'


def test_class_of_a_user_that_is_no_latency_backend_is_a_fault_of_the_input(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "not_a_backend.py").write_text("class Nothing: pass")
    assert cli.main(["validate", LINEAR, "--set", "latency.backend=not_a_backend:Nothing"]) == 2
    assert capsys.readouterr().err == (
        '--set: latency.backend: "not_a_backend:Nothing" is no latency backend: expected a subclass of '
        "simulator.latency.base.LatencyModel\n")


@pytest.mark.parametrize("closing", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_closed_streams_are_no_fault(closing):
    line = f"{sys.executable} -m simulator validate configs/linear.toml {closing}"
    done = subprocess.run(["bash", "-c", line], cwd=CONFIGS.parent, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk_under_the_output_is_told_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "simulator", "validate", LINEAR], stdout=full,
                              stderr=subprocess.PIPE, text=True, cwd=CONFIGS.parent)
    assert (done.returncode, done.stderr) == (1, "output: cannot be written: No space left on device\n")


def test_full_disk_under_the_results_is_told_in_one_line(tmp_path):
    line = f"ulimit -f 50; {sys.executable} -m simulator {LINEAR} --quiet --out {tmp_path}/o"      # more is written
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=CONFIGS.parent)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path}/o: cannot be written: File too large\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", cli.STUDIES)
def test_every_study_has_its_options_and_its_run(command, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    assert "usage: simulator" in capsys.readouterr().out
    assert callable(cli._study(command).run)


def test_studies_are_imported_only_when_asked_for():
    done = python("-X", "importtime", "-m", "simulator", "validate", "configs/linear.toml")
    assert "simulator.study" not in done.stderr


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


SMALL = """
[engine]
max_model_len = 512
num_gpu_blocks = 100
[latency]
backend = "linear"
[workload]
type = "synthetic"
num_requests = 5
arrival = {process = "constant", rate_per_s = 1000.0}
prompt_tokens = {distribution = "constant", tokens = 20}
output_tokens = {distribution = "constant", tokens = 5}
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return the name of a small experiment in the current folder, which is a fresh one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "small.toml").write_text(SMALL)
    return "small.toml"


@pytest.mark.parametrize(("name", "message"), [
    ("a\0b", "a\\x00b: cannot be a folder of results: a name cannot hold NUL"),
    ("x" * 300, "x" * 200 + ": cannot be a folder of results: File name too long"),
    ("\udcffx", "\\udcffx: not UTF-8; the name stands in the results")])
def test_folder_that_no_results_can_have_is_a_fault_of_the_input(small, capsys, name, message):
    assert cli.main([small, "--out", name]) == 2
    assert capsys.readouterr() == ("", message + "\n")


@pytest.mark.parametrize("setting", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_letters_that_the_terminal_lacks_are_escaped(small, setting):
    done = subprocess.run([sys.executable, "-m", "simulator", small, "--set", "name=größe"], capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(CONFIGS.parent)} | setting)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] in (b"results in results/gr\\xf6\\xdfe", "results in results/größe".encode())
    assert os.path.isdir("results/größe")


def test_both_streams_keep_their_order_in_one_pipe():
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-m", "simulator", "from",
                           "vllm serve meta-llama/Llama-3.1-8B --stream-interval 4", "--gpu", "h100-sxm-80gb",
                           "--allow-unmodelled"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=kept | {"PYTHONPATH": str(CONFIGS.parent)})
    assert done.returncode == 0, done.stdout
    assert done.stdout.index("[workload") < done.stdout.index("Not modelled")


def test_home_is_found_in_every_path(small, tmp_path):
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,2\n")
    assert cli.main(["~/small.toml", "--quiet", "--out", "~/there"]) == 0
    assert (tmp_path / "there" / "summary.json").exists()
    head = SMALL.partition("[workload]")[0]
    (tmp_path / "traced.toml").write_text(head + "[workload]\ntype = 'trace'\npath = '~/t.csv'")
    assert cli.main(["traced.toml", "--quiet", "--set", "output.directory='~/two'"]) == 0
    assert (tmp_path / "two" / "summary.json").exists()


@pytest.mark.parametrize(("words", "message"), [
    (["pipe"], "pipe: a FIFO, expected a file\n"),
    (["small.toml", "--set", "workload={type='trace', path='pipe'}"],
     '--set: workload.path: expected a file, found "pipe", a FIFO\n'),
    (["small.toml", "--set", "workload={type='trace', path='/dev/null'}"],
     '--set: workload.path: expected a file, found "/dev/null", a device\n')])
def test_what_cannot_be_read_twice_is_no_input(small, capsys, words, message):
    os.mkfifo("pipe")
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


def test_too_little_memory_is_a_fault_of_the_input(run_experiment, capsys):
    run_experiment.interrupted_by = MemoryError("Unable to allocate 4 GiB")
    assert cli.main([LINEAR]) == 2
    assert capsys.readouterr().err == (
        "simulator: not enough memory: Unable to allocate 4 GiB; ask for fewer requests, replicas or KV blocks, or for "
        "less output\n")


def test_end_of_the_program_in_a_users_class_names_it_and_the_line(small, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "my_gate.py").write_text("""
import sys
from simulator.admission.python_admission import PythonAdmission
class Leaves(PythonAdmission):
    def lets_pass(self, request, now_ns):
        sys.exit("enough")
""")
    assert cli.main([small, "--quiet", "--out", "o", "--set", "cluster.admission.policy=my_gate:Leaves"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        f'simulator: "my_gate:Leaves", line 6 of {tmp_path}/my_gate.py, raised SystemExit: enough')


def test_interrupt_while_the_program_starts_ends_it_quietly():
    # a module that takes its time while simulator.cli is imported, and is interrupted then
    code = ("import sys, types, signal, os; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "class Slow:\n"
            "    def find_spec(self, name, *_):\n"
            "        if name == 'simulator.cli': os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Slow())\n"
            "from simulator.__main__ import main\nsys.exit(main())")
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
