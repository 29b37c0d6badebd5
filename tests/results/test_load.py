"""Results that are broken are refused with file and reason."""
import errno
import json
import os
import pickle
import shutil

import h5py
import numpy as np
import pytest

import simulator
from simulator.errors import InputErrors

EXPERIMENT = """
seed = 3
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 400, max_model_len = 4096, max_num_seqs = 32}
latency = {backend = "linear"}
output = {token_times = true}
[workload]
type = "synthetic"
num_requests = 50
arrival = {process = "poisson", rate_per_s = 60.0}
prompt_tokens = {distribution = "constant", tokens = 300}
output_tokens = {distribution = "constant", tokens = 20}
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    simulator.run(folder / "experiment.toml", out=folder / "out")
    return folder / "out"


@pytest.fixture
def results(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "out")


def edit_summary(results, **changes):
    summary = json.loads((results / "summary.json").read_text()) | changes
    kept = {key: value for key, value in summary.items() if value != "absent"}
    (results / "summary.json").write_text(json.dumps(kept))


def edit_tables(results, change):
    with h5py.File(results / "results.h5", "r+") as file:
        change(file)


def truncate(results):
    path = results / "results.h5"
    os.truncate(path, path.stat().st_size // 2)


def without_column(file, name, column):
    rows = file[name][:]
    kept = [each for each in rows.dtype.names if each != column]
    del file[name]
    file[name] = np.array(rows[kept].tolist(), [(each, rows.dtype[each]) for each in kept])


def write_other_file(results):
    (results / "results.h5").unlink()
    with h5py.File(results / "results.h5", "w") as file:
        file["data"] = [1, 2, 3]


def replace_table(file):
    del file["requests"]
    file["requests"] = [1, 2, 3]


@pytest.mark.parametrize(("harm", "told"), [
    (lambda results: shutil.rmtree(results), r"out: no such folder"),
    (lambda results: (results / "summary.json").unlink(), r"summary\.json: no such file; a run writes it last"),
    (lambda results: (results / "results.h5").unlink(), r"results\.h5: no such file"),
    (lambda results: (results / "summary.json").write_text('{"schema": 1,'), r"summary\.json: is no JSON: Expecting"),
    (lambda results: (results / "summary.json").write_bytes(b'{"\xff": 1}'), r"summary\.json: is no JSON: .*utf-8"),
    (lambda results: (results / "summary.json").write_text("[" * 100_000), r"summary\.json: is no JSON"),
    (lambda results: (results / "summary.json").write_text("[1]"), r"summary\.json: expected an object, found list"),
    (lambda results: edit_summary(results, schema=2), r"summary\.json: schema: expected 1, which this version reads"),
    (lambda results: edit_summary(results, schema=True), r"summary\.json: schema: expected 1, .* found True"),
    (lambda results: edit_summary(results, schema="absent"), r"summary\.json: says no schema"),
    (lambda results: edit_summary(results, complete="absent"), r"summary\.json: complete: expected bool, found None"),
    (lambda results: edit_summary(results, requests=3), r"summary\.json: requests: expected dict, found 3"),
    (truncate, r"results\.h5: cannot be read as HDF5: .*truncated"),
    (lambda results: (results / "results.h5").write_text("no table"), r"results\.h5: cannot be read as HDF5"),
    (lambda results: (results / "results.h5").write_text(""), r"results\.h5: cannot be read as HDF5"),
    (write_other_file, r"results\.h5: says no schema; it is not from a run"),
    (lambda results: edit_tables(results, lambda file: file.attrs.modify("schema", 2)), r"expected 1, .*found 2"),
    (lambda results: edit_tables(results, lambda file: file.pop("replicas")), r"there is no /replicas"),
    (lambda results: edit_tables(results, lambda file: file.pop("requests")), r"there is no /requests"),
    (lambda results: edit_tables(results, lambda file: file.pop("token_times")), r"there is no /token_times"),
    (lambda results: edit_tables(results, lambda file: without_column(file, "requests", "status")),
     r"results\.h5: /requests has no column status"),
    (lambda results: edit_tables(results, lambda file: without_column(file, "iterations", "duration_ns")),
     r"results\.h5: /iterations has no column duration_ns"),
    (lambda results: edit_tables(results, replace_table), r"/requests is no table of named columns"),
])
def test_a_broken_directory_is_refused_with_file_and_reason(results, harm, told):
    harm(results)

    with pytest.raises(InputErrors, match=told) as caught:
        simulator.load_results(results)

    assert str(results) in str(caught.value)


def test_a_pipe_in_place_of_a_file_does_not_wait_for_ever(results):
    for name in ("results.h5", "summary.json"):
        (results / name).unlink()
        os.mkfifo(results / name)
        with pytest.raises(InputErrors, match=rf"{name}: is no file"):
            simulator.load_results(results)


def refuse(*_, **__):
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(("place", "name"), [("h5py.File", "results.h5"), ("pathlib.Path.read_text", "summary.json")])
def test_a_file_that_may_not_be_read_is_named(results, monkeypatch, place, name):
    monkeypatch.setattr(place, refuse)      # root, as whom tests may run, may read everything

    with pytest.raises(InputErrors, match=rf"{name}: .*Permission denied"):
        simulator.load_results(results)


def test_a_flipped_byte_is_found_by_its_checksum(results):
    with h5py.File(results / "results.h5") as file:
        place = file["requests"].id.get_chunk_info(0)
    with open(results / "results.h5", "r+b") as file:
        file.seek(place.byte_offset + place.size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))

    loaded = simulator.load_results(results)

    with pytest.raises(InputErrors, match=r"results\.h5: /requests cannot be read, the file is damaged"):
        _ = loaded.requests
    assert len(loaded.iterations)


def test_results_that_were_written_pickle_without_their_tables(results, monkeypatch):
    loaded = simulator.load_results(results)
    _ = loaded.requests

    data = pickle.dumps(loaded)
    monkeypatch.chdir("/")

    again = pickle.loads(data)
    assert len(data) < 20_000
    assert again.summary == loaded.summary
    assert again.directory == results
    assert np.array_equal(again.requests, loaded.requests)


def test_a_relative_folder_is_found_again_from_elsewhere(results, monkeypatch):
    monkeypatch.chdir(results.parent)
    data = pickle.dumps(simulator.load_results("out"))
    monkeypatch.chdir("/")

    assert len(pickle.loads(data).requests) == 50


def test_results_in_memory_pickle_with_their_tables(tmp_path):
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    result = simulator.run(tmp_path / "experiment.toml", overrides={"topology.replicas": 2})

    again = pickle.loads(pickle.dumps(result))

    assert again.summary == result.summary
    assert again.directory is None
    for name in ("requests", "iterations", "replicas"):
        assert np.array_equal(getattr(again, name), getattr(result, name))
    for one, other in zip(again.token_times, result.token_times, strict=True):
        assert np.array_equal(one, other)
