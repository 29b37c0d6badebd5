"""Tables as pandas data frames, and what results.h5 says of its columns."""
import builtins
import json

import h5py
import numpy as np
import pytest
from msgspec.structs import replace

from results.fakes import MS, legs_of, output_of, small_run
from results.test_hdf5 import write
from simulator import registry
from simulator.domain import columns, records
from simulator.results import tables, traits
from simulator.results.memory import MemoryRecorder
from simulator.results.reader import Reader
from simulator.results.result import Result
from support.workloads import plain_workload

LABELS = ["fast", "slow", "fast", None, "slow", "fast"]


@pytest.fixture
def result(tmp_path):
    run = small_run(slo_class=LABELS)
    run.lifecycle = np.zeros(2, records.LIFECYCLE)
    run.lifecycle["state"] = 4
    run.legs = legs_of([(1, 0, 5, 5, 12, "moved"), (1, 0, 9, 12, 30, "completed")])
    return Result({}, Reader(write(tmp_path / "a", run, token_times=True)), tmp_path / "a")


def test_codes_and_labels_become_categories(result):
    pytest.importorskip("pandas")

    frame = result.to_pandas()

    assert list(frame.columns) == list(result.requests.dtype.names)
    assert frame["status"].tolist() == ["completed", "completed", "running", "waiting", "rejected", "pending"]
    assert frame["finish_reason"].tolist() == ["stop", "stop", "none", "none", "rejected", "none"]
    assert frame["slo_class"].isna().tolist() == [False, False, False, True, False, False]
    assert frame["slo_class"].tolist()[:3] == ["fast", "slow", "fast"]
    assert frame[frame.status == "completed"]["output_tokens"].sum() == 5
    assert result.to_pandas("lifecycle")["state"].tolist() == ["up", "up"]
    assert result.to_pandas("legs")["how"].tolist() == ["moved", "completed"]
    assert result.legs["ended_ns"].tolist() == [12 * MS, 30 * MS]


def test_every_table_has_a_frame_of_its_columns(result):
    pytest.importorskip("pandas")

    for name in ("iterations", "replicas"):
        frame, rows = result.to_pandas(name), getattr(result, name)
        assert list(frame.columns) == list(rows.dtype.names)
        assert all(frame[column].tolist() == rows[column].tolist() for column in rows.dtype.names)


def test_a_token_is_a_row(result):
    pytest.importorskip("pandas")

    frame = result.to_pandas("token_times")

    # requests 0, 1, 2 have 4, 1 and 2 tokens
    assert frame["request"].tolist() == [0, 0, 0, 0, 1, 2, 2]
    assert frame["token"].tolist() == [0, 1, 2, 3, 0, 0, 1]
    assert (frame["time_ns"] / 1e6).tolist() == [10, 30, 35, 40, 30, 50, 50]


def test_a_table_of_results_in_memory_is_the_same(result):
    pytest.importorskip("pandas")
    run = small_run(slo_class=LABELS)
    in_memory = Result({}, MemoryRecorder(output_of(iterations=False), run.workload).finish(run))

    assert in_memory.to_pandas().equals(result.to_pandas())


def test_an_unknown_table_and_one_that_is_absent_are_named(result):
    with pytest.raises(ValueError, match=r"no table 'request'; did you mean requests\?"):
        result.to_pandas("request")
    pytest.importorskip("pandas")
    with pytest.raises(LookupError, match=r"\[output\] decisions was 0"):
        result.to_pandas("decisions")


def test_without_pandas_it_says_how_to_get_it(result, monkeypatch):
    there = builtins.__import__

    def absent(name, *arguments, **options):
        if name == "pandas":
            raise ImportError(name)
        return there(name, *arguments, **options)
    monkeypatch.setattr(builtins, "__import__", absent)

    with pytest.raises(ImportError, match="to_pandas needs pandas: pip install pandas"):
        result.to_pandas()


def test_every_column_is_described_and_no_other():
    journeys = np.zeros(1, records.JOURNEY)
    workload = replace(plain_workload([0], 1, 1), script=object(), measured=np.ones(1, bool))
    none = dict.fromkeys(traits.COLUMNS, np.zeros(1))
    shown = {"requests": tables.request_dtype(workload, journeys, none), "iterations": tables.ITERATION,
             "replicas": tables.REPLICA, "kv_tiers": records.KV_TIER}
    shown |= {name: tables.without_spare(record) for name, record in (
        ("legs", records.LEG), ("encode_jobs", records.ENCODE_JOB))}
    shown |= {name: rows.dtype for part in registry.parts() for name, rows in part.tables.items()}

    assert shown.keys() == columns.TABLES.keys()
    for name, dtype in shown.items():
        assert set(dtype.names) == set(columns.TABLES[name]), name
        for field, column in columns.TABLES[name].items():
            assert (column.unit == "ns") == field.endswith("_ns") or field == "used_block_ns"
            assert column.text


def test_the_file_describes_its_columns_and_codes(tmp_path):
    with h5py.File(write(tmp_path / "a")) as file:
        fields = json.loads(file["requests"].attrs["fields"])
        kinds = {name: h5py.check_enum_dtype(file["requests"].dtype[name]) for name in ("status", "finish_reason")}
        iterations = json.loads(file["iterations"].attrs["fields"])

    assert list(fields) == list(tables.request_dtype(plain_workload([0], 1, 1)).names)
    assert fields["arrival_ns"] == {"unit": "ns", "text": "time of arrival"}
    assert kinds["status"]["failed"] == records.FAILED
    assert kinds["finish_reason"] == {"none": 0, "stop": 1, "length": 2, "max_model_len": 3, "timeout": 4, "error": 5,
                                      "abort": 6, "rejected": 7, "cancelled": 8, "kv_pool": 9}
    assert list(iterations) == list(tables.ITERATION.names)


def test_every_table_is_compressed_and_carries_a_checksum(tmp_path):
    found = []
    with h5py.File(write(tmp_path / "a", small_run(slo_class=LABELS), token_times=True)) as file:
        file.visititems(lambda name, each: found.append((name, each.fletcher32, each.compression))
                        if isinstance(each, h5py.Dataset) else None)

    assert {name for name, *_ in found} == {
        "requests", "iterations", "replicas", "labels/slo_class", "token_times/offsets", "token_times/times_ns"}
    assert {(checksum, compression) for _, checksum, compression in found} == {(True, "gzip")}


def test_polars_takes_codes_and_labels_as_names(result):
    pytest.importorskip("polars", reason="polars is the reader's choice, not a dependency")

    frame = result.to_polars()

    assert frame.columns == list(result.requests.dtype.names)
    assert frame["status"].to_list() == ["completed", "completed", "running", "waiting", "rejected", "pending"]
    assert frame["slo_class"].to_list() == ["fast", "slow", "fast", None, "slow", "fast"]
    assert result.to_polars("token_times")["time_ns"].to_list()[:2] == [10 * MS, 30 * MS]


def test_xarray_keeps_codes_and_says_what_they_mean(result):
    pytest.importorskip("xarray", reason="xarray is the reader's choice, not a dependency")

    found = result.to_xarray()

    assert dict(found.sizes) == {"row": 6}
    assert found["arrival_ns"].attrs == {"units": "ns", "description": "it came"}
    assert found["status"].attrs["labels"][int(found["status"][0])] == "completed"
    assert result.to_xarray("token_times")["token"].values.tolist()[:2] == [0, 1]


@pytest.mark.parametrize("call", ["to_polars", "to_xarray"])
def test_other_frames_refuse_an_unknown_table(result, call):
    with pytest.raises(ValueError, match="no table 'request'; did you mean requests"):
        getattr(result, call)("request")
