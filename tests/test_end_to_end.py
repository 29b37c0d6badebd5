"""Experiments from file to files with the real engine: what a new user does, and what goes wrong for them."""
import fcntl
import gzip
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import h5py
import numpy as np
import pytest
import tomli

import simulator
from simulator import cli
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.errors import InputErrors

ROOT = Path(simulator.__file__).parents[1]
EXPERIMENTS = sorted(path for path in (ROOT / "configs").glob("*.toml")
                     if path.stem not in {"forest", "operators", "vidur"}         # tests/test_configs.py
                     and not path.stem.startswith("compare_") and "\n[study]\n" not in path.read_text())
TABLES = ("summary.json", "results.h5", "resolved.toml", "trace.json")

# A tight pool, shared prompts, speculation, time-outs, every host delay and two replicas: as much as fits in one run.
BUSY = """
seed = 3
topology = {replicas = 2}
slo = {ttft_ms = 50.0}
output = {chrome_trace = true, token_times = true}
[engine]
max_num_seqs = 16
max_num_batched_tokens = 128
max_model_len = 512
num_gpu_blocks = 40
speculative = {num_tokens = 2, acceptance = {distribution = [0.5, 0.3, 0.2]}}
[latency]
backend = "linear"
host = {queue_base_us = 300.0, queue_per_prompt_token_us = 0.7, output_token_us = 50.0, iteration_us = 110.0}
[workload]
type = "trace"
path = "busy.csv"
"""
# One iteration: 5000 us + 10 a sequence + 20 a prompt token. Decoding: 5010 us and nothing for context.
PLAIN = """
[engine]
max_num_batched_tokens = 256
max_model_len = 512
num_gpu_blocks = 25
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_context_token_us = 0.0
[workload]
type = "trace"
path = "trace.csv"
"""
COLUMNS = "arrived_at,num_prefill_tokens,num_decode_tokens"


def write(folder, experiment, **traces):
    """Write an experiment and traces (text, or rows below `COLUMNS`); return the path of the experiment."""
    for name, rows in traces.items():
        text = rows if isinstance(rows, str) else "\n".join([COLUMNS, *rows]) + "\n"
        (folder / f"{name}.csv").write_text(text, encoding="utf-8", newline="")
    path = folder / "experiment.toml"
    path.write_text(experiment, encoding="utf-8")
    return path


def busy_trace():
    lines = [f"{COLUMNS},prompt,deadline_s,priority"]
    for i in range(150):
        shared, own, output = 16 * (i % 4), 1 + 37 * i % 90, 5 + 61 * i % 120
        deadline = 0.3 if i % 7 == 0 else ""
        lines.append(f"{0.03 * i:.3f},{shared + own},{output},s{i % 3}:{shared}/:{own},{deadline},{i % 2}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def busy(tmp_path):
    return write(tmp_path, BUSY, busy=busy_trace())


def run_command(*arguments, **options):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    options = {"env": {**os.environ, "PYTHONPATH": path}, "capture_output": True, "text": True} | options
    return subprocess.run([sys.executable, "-m", "simulator", *map(str, arguments)], **options)


def datasets(directory):
    """Return the bytes of each table of results.h5."""
    with h5py.File(directory / "results.h5") as file:
        names = []
        file.visit(names.append)
        return {name: file[name][()].tobytes() for name in names if isinstance(file[name], h5py.Dataset)}


def assert_conserved(summary):
    counts = dict(summary["requests"])
    assert counts.pop("length_capped") == 0
    assert counts.pop("injected") == sum(counts.values())


# ---- the same experiment gives the same results


def test_reruns_are_identical_whatever_the_hash_seed_and_the_folder_one_starts_from(busy, tmp_path):
    for seed, folder in (("1", tmp_path), ("2", ROOT)):
        done = run_command(busy, "--quiet", "--out", tmp_path / seed, cwd=folder, env={
            **os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)})
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name in TABLES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_the_resolved_experiment_gives_the_same_results(busy, tmp_path, capsys):
    simulator.run(busy, {"engine.max_num_seqs": 8}, out=tmp_path / "one")
    assert cli.main(["validate", str(busy), "--set", "engine.max_num_seqs=8"]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    resolved = elsewhere / "resolved.toml"
    resolved.write_text(capsys.readouterr().out, encoding="utf-8")

    simulator.run(resolved, out=tmp_path / "other")

    for name in TABLES:
        one, other = ((tmp_path / folder / name).read_bytes() for folder in ("one", "other"))
        if name == "resolved.toml":         # the second names that file as the source of all values
            one, other = tomli.loads(one.decode()), tomli.loads(other.decode())
        assert one == other, name


def test_fast_forward_changes_no_result(busy, tmp_path):
    fast = simulator.run(busy, out=tmp_path / "fast")
    simulator.run(busy, {"engine.fast_forward": False}, out=tmp_path / "slow")

    assert fast.summary["preemptions"] > 0 and fast.summary["prefix_cache"]["hit_tokens"] > 0
    assert fast.summary["requests"]["timed_out"] > 0
    assert datasets(tmp_path / "fast") == datasets(tmp_path / "slow")
    for name in ("summary.json", "trace.json"):
        assert (tmp_path / "fast" / name).read_bytes() == (tmp_path / "slow" / name).read_bytes()


def test_what_is_written_changes_no_result(busy, tmp_path):
    simulator.run(busy, out=tmp_path / "all")
    nothing = dict.fromkeys(("output.iterations", "output.token_times", "output.chrome_trace"), False)
    simulator.run(busy, nothing, out=tmp_path / "least")

    everything = datasets(tmp_path / "all")
    assert {"iterations", "token_times/offsets"} <= everything.keys()
    assert datasets(tmp_path / "least") == {name: everything[name] for name in ("replicas", "requests")}
    assert (tmp_path / "all" / "summary.json").read_bytes() == (tmp_path / "least" / "summary.json").read_bytes()
    assert not (tmp_path / "least" / "trace.json").exists()


SIZES = {"trace": "workload.max_requests", "synthetic": "workload.num_requests", "sessions": "workload.num_sessions"}


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.stem)
def test_shipped_experiments_run(config, tmp_path):
    kind = load_experiment(config).workload.type
    size = {SIZES[kind]: 30, "workload.measure.warmup_s": 0.0} if kind in SIZES else {}
    if config.stem == "azure_conv":
        trace = tmp_path / "azure.csv"
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
                         "2023-11-16 18:15:50.9951690,396,109\n")
        size = {"workload.path": str(trace)}
    result = simulator.run(config, size)
    counts = dict(result.summary["requests"])
    assert counts["completed"] > 0
    assert counts.pop("length_capped") == 0
    # The first client of the benchmark that is done stops all.
    assert (counts.pop("not_sent", 0) > 0) == (config.stem == "vllm_multi_turn")
    assert counts.pop("injected") == sum(counts.values())


# ---- traces as people have them


def test_line_ends_marks_and_compression_of_a_trace_do_not_matter(tmp_path):
    rows = "0,100,5\n0.01,200,10\n"
    text = f"{COLUMNS}\n{rows}".encode()
    packed = gzip.compress(text)
    variants = {"plain.csv": text, "no_end.csv": text.rstrip(), "crlf.csv": text.replace(b"\n", b"\r\n"),
                "bom.csv": b"\xef\xbb\xbf" + text, "packed.csv.gz": packed, "not_named_so.csv": packed}
    experiment = write(tmp_path, PLAIN)
    tables = []
    for name, content in variants.items():
        (tmp_path / name).write_bytes(content)
        tables.append(simulator.run(experiment, {"workload.path": str(tmp_path / name)}).requests.tobytes())
    assert set(tables) == {tables[0]}


def test_ids_in_any_script_come_back(tmp_path):
    rows = f"request_id,{COLUMNS},prompt\nключ,0,40,1,\n\"b, \"\"c\"\"\",1,40,1,ключ.own:32/:8\n"
    result = simulator.run(write(tmp_path, PLAIN, trace=rows), out=tmp_path / "out")
    assert result.requests["request_id"].tolist() == ["ключ", 'b, "c"']
    assert result.requests["cached_tokens"].tolist() == [0, 32]


@pytest.mark.parametrize("trace", ["", "\n", f"{COLUMNS}\n"], ids=["no bytes", "empty line", "no rows"])
def test_trace_without_requests_is_refused(trace, tmp_path):
    with pytest.raises(InputErrors, match=r"trace\.csv: .*(empty|no rows)"):
        simulator.run(write(tmp_path, PLAIN, trace=trace))


def test_all_faults_are_reported_and_nothing_is_written(tmp_path):
    experiment = write(tmp_path, PLAIN + "[slo]\nttft = 3\n")
    done = run_command(experiment, "--set", "engine.max_num_seq=3", "--set", "seed=-1", "--set", "latency.base_us='1'",
                       cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.findall(r"^(?:--set|.*experiment\.toml): ([\w.]+):", done.stderr, re.MULTILINE) == [
        "seed", "engine.max_num_seq", "latency.base_us", "slo.ttft"]
    assert os.listdir(tmp_path) == ["experiment.toml"]


# ---- what can become of a request


def test_every_fate_of_a_request_is_counted_once(tmp_path):
    # 24 blocks of 16 hold 384 tokens. Row by row: fits; longer than the cache; longer than max_model_len; one token
    # is sampled and none is kept; gives up while waiting for the first; never arrives.
    rows = ["0,300,80", "0,400,1", "0,512,1", "0.001,16,0", "0.001,300,1", "9,1,1"]
    trace = "\n".join([f"{COLUMNS},deadline_s", *(f"{row},{'0.02' if i == 4 else ''}" for i, row in enumerate(rows))])
    summary = simulator.run(write(tmp_path, PLAIN, trace=trace), {"horizon_s": 0.1}).summary
    assert summary["requests"] == {
        "injected": 5, "completed": 1, "rejected": 1, "dropped": 1, "timed_out": 1, "failed": 0, "waiting": 0,
        "running": 1, "length_capped": 0}
    assert summary["complete"] is True


# Alone, a prompt of 100 and one token ends after 5000 + 10 + 100 x 20 us.
@pytest.mark.parametrize(("deadline_s", "status"), [
    ("0.007010000", records.COMPLETED), ("0.007009999", records.TIMED_OUT), ("0", records.TIMED_OUT)])
def test_a_request_that_ends_at_its_deadline_is_in_time(deadline_s, status, tmp_path):
    experiment = write(tmp_path, PLAIN, trace=f"{COLUMNS},deadline_s\n0,100,1,{deadline_s}\n")
    assert simulator.run(experiment).requests["status"].tolist() == [status]


@pytest.mark.parametrize("horizon_s", [1e-9, 0.3, 2.0, 4.0])
def test_nothing_is_lost_at_the_horizon(horizon_s, busy):
    stopped, full = simulator.run(busy, {"horizon_s": horizon_s}), simulator.run(busy)
    assert_conserved(stopped.summary)
    assert stopped.summary["requests"]["injected"] == (full.requests["arrival_ns"] <= horizon_s * 1e9).sum()
    ended = stopped.requests["status"] == records.COMPLETED
    assert np.array_equal(stopped.requests[ended], full.requests[ended])


def test_what_can_never_go_on_is_explained(tmp_path):
    # 7 usable blocks hold 112 tokens: 100 of prompt and 12 of output.
    result = simulator.run(write(tmp_path, PLAIN, trace=["0,100,50", "0,10,5"]), {"engine.num_gpu_blocks": 8})
    assert result.summary["requests"]["waiting"] == 2
    assert result.requests["output_tokens"].tolist() == [13, 0]
    assert result.summary["verdict"] == "unserved"
    assert result.summary["diagnosis"][0] == "of 2 requests none was served: 2 still waited at the end of the run"
    assert "stuck: request 0 " in result.summary["diagnosis"][1]


# ---- terminals, pipes and signals


def test_progress_is_drawn_on_a_terminal(busy, tmp_path):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    done = run_command(busy, "--out", tmp_path / "out", capture_output=False, stdout=subprocess.PIPE, stderr=theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert "/150 requests" in shown
    assert "TTFT" in done.stdout and "results in " in done.stdout


# At the 1,000th iteration the process gets a signal as if from its terminal; the rest takes about 0.1 s.
INTERRUPTING = """
import os, signal
from simulator.latency.python_model import PythonLatencyModel


class Interrupting(PythonLatencyModel):
    calls = 0

    def batch_us(self, shape):
        Interrupting.calls += 1
        if Interrupting.calls == 1000:
            for number in SIGNALS:
                os.kill(os.getpid(), number)
                for _ in range(10):     # Python runs handlers between steps
                    pass
        return 1000.0
"""
LONG = """
engine = {max_num_seqs = 4, max_model_len = 512, num_gpu_blocks = 1000, fast_forward = false}
latency = {backend = "interrupting:Interrupting"}
[workload]
type = "synthetic"
num_requests = 4000
arrival = {process = "constant", rate_per_s = 40.0}
prompt_tokens = {distribution = "constant", tokens = 8}
output_tokens = {distribution = "constant", tokens = 60}
"""


def interrupt(folder, signals):
    numbers = ", ".join(f"signal.{name}" for name in signals)
    (folder / "interrupting.py").write_text(INTERRUPTING.replace("SIGNALS", f"({numbers},)"))
    return run_command(write(folder, LONG), "--quiet", "--out", folder / "out")


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupted_run_leaves_what_it_had(name, status, tmp_path):
    done = interrupt(tmp_path, [name])
    assert done.returncode == status
    assert re.fullmatch(r"warning: the run stopped at [\d.]+ s: of 4,000 requests \d ran, \d waited and [\d,]+ had not "
                        r"come\n", done.stderr)
    assert sorted(os.listdir(tmp_path / "out")) == ["provenance.json", "resolved.toml", "results.h5", "summary.json"]
    stopped = simulator.load_results(tmp_path / "out")
    assert stopped.summary["complete"] is False
    assert 0 < stopped.summary["requests"]["completed"] < 4000
    assert_conserved(stopped.summary)
    ended = stopped.requests[stopped.requests["status"] == records.COMPLETED]
    assert set(ended["output_tokens"].tolist()) == {60}
    assert stopped.summary["iterations"] == len(stopped.iterations)


@pytest.mark.usefixtures("heeded_signals")
def test_a_second_signal_leaves_nothing(tmp_path):
    done = interrupt(tmp_path, ["SIGINT", "SIGINT"])
    assert (done.returncode, done.stderr) == (130, "")
    assert not [name for name in os.listdir(tmp_path) if "out" in name]


def test_results_are_not_replaced_unasked(busy, tmp_path):
    out = tmp_path / "out"
    simulator.run(busy, out=out)
    before = json.loads((out / "summary.json").read_text())

    refused = run_command(busy, "--quiet", "--out", out, "--set", "seed=4")
    assert refused.returncode == 2 and "--overwrite" in refused.stderr
    assert json.loads((out / "summary.json").read_text()) == before

    replaced = run_command(busy, "--quiet", "--out", out, "--set", "seed=4", "--overwrite")
    assert replaced.returncode == 0
    assert json.loads((out / "summary.json").read_text())["seed"] == 4
