"""A page takes the same memory whatever there are of rows, and is the same by whatever blocks these are read."""
import subprocess
import sys
from pathlib import Path

import pytest

import simulator
from simulator.results import memory, reader, unpacked_columns
from simulator.results.load import load_results
from simulator.study import report_command

EXPERIMENT = """
hardware = {name = "h100-sxm-80gb"}
model = {name = "llama-3.1-8b"}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_prefill_token_us = 5}
slo = {ttft_ms = 12.0, tpot_ms = 6.0}
[[pools]]
name = "pool"
replicas = 3
[workload]
type = "synthetic"
num_requests = NUMBER
prompt_tokens = {distribution = "lognormal", mean = 300, std = 200, max = 2000}
output_tokens = {distribution = "lognormal", mean = 3, std = 3, max = 20}
arrival = {process = "poisson", rate_per_s = 900}
"""
PEAK = """
import resource, sys
from simulator.study.report_command import write_page
write_page(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return the function that runs so many requests, once, and gives the place of the results."""
    pytest.importorskip("matplotlib", reason="pictures are in the report extra")
    folder, made = tmp_path_factory.mktemp("results"), {}

    def of(number, *overrides):
        if (number, overrides) not in made:
            experiment, out = folder / f"{len(made)}.toml", folder / f"{len(made)}"
            experiment.write_text(EXPERIMENT.replace("NUMBER", str(number)))
            sets = [part for each in overrides for part in ("--set", each)]
            command = ["run", experiment, "--out", out, "--quiet", *sets]
            subprocess.run([sys.executable, "-m", "simulator", *command], check=True)
            made[number, overrides] = out
        return made[number, overrides]

    return of


def peak_mb(directory):
    """Return the peak memory of a process that writes the report."""
    run = subprocess.run([sys.executable, "-c", PEAK, str(directory)], capture_output=True, text=True, check=True,
                         cwd=Path(simulator.__file__).parents[1])
    return int(run.stdout) / (1024 if sys.platform == "linux" else 1 << 20)


@pytest.mark.ci
@pytest.mark.skipif(sys.platform == "win32", reason="resource is for POSIX")
def test_memory_of_a_page_does_not_grow_with_the_tables(results):
    # 400,000 requests more, in 170,000 iterations and with 1.2 million tokens more: when rows were held, 95 MB
    few, many = (peak_mb(results(number, "output.token_times=true")) for number in (400_000, 800_000))

    assert many - few < 20


@pytest.mark.parametrize("block_rows", [1000, 5003])
def test_pages_are_the_same_by_blocks_of_any_size(results, monkeypatch, block_rows):
    directory = results(20_000, "output.token_times=true")
    page = report_command.write_page(directory).read_bytes()
    monkeypatch.setattr(reader.column_blocks, "__defaults__", (block_rows,))
    monkeypatch.setattr(reader.Reader.column_blocks, "__defaults__", (block_rows,))
    monkeypatch.setattr(unpacked_columns, "FILTERS", ())        # chunks would set the size of blocks

    assert report_command.write_page(directory).read_bytes() == page


def test_a_notebook_shows_the_same_by_blocks_of_any_size(monkeypatch, tmp_path):
    experiment = tmp_path / "a.toml"
    experiment.write_text(EXPERIMENT.replace("NUMBER", "3000"))
    in_memory = simulator.run(experiment)
    shown = in_memory._repr_html_()
    monkeypatch.setattr(memory, "BLOCK_ROWS", 501)

    assert in_memory._repr_html_() == shown
    assert load_results(simulator.run(experiment, out=tmp_path / "out").directory)._repr_html_() == shown
