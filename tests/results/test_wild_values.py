"""Values that no run writes end `report` and `export` as one line that names them."""
import h5py
import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.errors import InputErrors
from simulator.results.wild_values import first_wild, refusing_wild_values

EXPERIMENT = """
engine = {max_model_len = 100, num_gpu_blocks = 100}
latency = {backend = "linear"}
workload = {type = "synthetic", num_requests = 20, arrival = {process = "poisson", rate_per_s = 20.0}, \
prompt_tokens = {distribution = "constant", value = 10}, output_tokens = {distribution = "constant", value = 5}}
"""


@pytest.fixture
def results(tmp_path):
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    simulator.run(tmp_path / "a.toml", out=tmp_path / "r")
    return tmp_path / "r"


def put(results, table, column, row, value):
    with h5py.File(results / "results.h5", "r+") as file:
        rows = file[table][:]
        rows[column][row] = value
        attributes = dict(file[table].attrs)
        del file[table]
        file[table] = rows
        file[table].attrs.update(attributes)


@pytest.mark.parametrize(("table", "column", "value"), [
    ("requests", "completed_ns", -(2**62)), ("requests", "status", 99), ("requests", "replica", 7),
    ("requests", "output_tokens", -5), ("iterations", "duration_ns", 2**63 - 1), ("requests", "finish_reason", -3)])
def test_the_first_wild_value_is_named(results, table, column, value):
    assert first_wild(results / "results.h5") is None
    put(results, table, column, 3, value)

    assert first_wild(results / "results.h5") == f"/{table}, row 3: {column}: no run writes {value}"


def test_an_error_without_a_wild_value_is_told_too_and_refusals_stay(results):
    file = results / "results.h5"
    message = r"results\.h5: its values cannot be worked with \(KeyError: 'x'\)"
    with pytest.raises(InputErrors, match=message), refusing_wild_values(file):
        raise KeyError("x")
    with pytest.raises(InputErrors, match=r"^no such request$"), refusing_wild_values(file):
        raise InputErrors(["no such request"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("words", [["report"], ["export", "--as", "vidur"], ["export", "--as", "csv"]])
def test_commands_end_with_one_line(results, seed, words, capsys):
    draws = np.random.default_rng(seed)
    with h5py.File(results / "results.h5") as file:
        shapes = {name: (len(file[name]), file[name].dtype) for name in ("requests", "iterations", "replicas")}
    for table, (count, dtype) in shapes.items():
        numbers = [name for name in dtype.names if dtype[name].kind == "i" and dtype[name].shape == ()]
        for column in draws.choice(numbers, 3, replace=False):
            limits = np.iinfo(dtype[column])
            put(results, table, column, draws.integers(count), draws.integers(limits.min, limits.max, dtype=np.int64))

    status = cli.main([words[0], str(results), *words[1:]])

    told = capsys.readouterr().err
    assert status in (0, 2), told
    assert "fault of the program" not in told
    assert status == 0 or len(told.strip().splitlines()) == 1
