"""Operator tables as files: layouts, versions, conversion, and what is wrong with them."""
import gzip
import sys

import h5py
import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.latency.operators import cache as operator_cache
from simulator.latency.operators.cache import columns_of
from simulator.latency.operators.files import find_tables, read_columns, version_of
from support.operator_profiles import GEMM, gemm_rows, write_tables


def named(found):
    return {name: [path.name for path in paths] for name, paths in found.items()}


def parquet(path, **columns):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(pa.table(columns), path)
    return path


def write_gemm(folder, text):
    path = folder / "gemm_perf.csv"
    path.write_text(text)
    return path


# ---- layouts

def test_a_folder_of_one_system_is_read_as_it_is(tmp_path):
    write_tables(tmp_path, moe=None)

    found = find_tables(str(tmp_path), None, "anything", "vllm")

    assert sorted(found) == ["context_attention", "custom_allreduce", "gemm", "generation_attention", "nccl"]


def test_a_folder_of_systems_is_searched_for_that_of_the_accelerator(tmp_path):
    write_tables(tmp_path / "h100_sxm")

    assert "gemm" in find_tables(str(tmp_path), None, "h100-sxm-80gb", "vllm")
    with pytest.raises(InputErrors, match='no operator tables of system "h200_sxm"; did you mean h100_sxm'):
        find_tables(str(tmp_path), None, "h200-sxm-141gb", "vllm")


def test_newer_versions_come_first_and_other_frameworks_lend_some_tables(tmp_path):
    folder = tmp_path / "data" / "b200_sxm"
    for place in ("gemm/vllm/0.9.0/gemm", "gemm/vllm/0.24.0/gemm", "gemm/sglang/1.0/gemm", "comm/nccl/2.29.2/nccl",
                  "mla/sglang/0.5.14/context_mla", "moe/sglang/0.5.14/moe"):
        path = folder / f"{place}_perf.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    found = find_tables(str(tmp_path), "b200_sxm", "any", "vllm")

    assert [version_of(path) for path in found["gemm"]] == ["0.24.0", "0.9.0"]
    assert sorted(found) == ["context_mla", "gemm", "nccl", "sglang_moe"]


@pytest.mark.parametrize("framework", ["vllm", "sglang", "trtllm"])
def test_each_framework_has_its_own_tables(tmp_path, framework):
    for whose in ("vllm", "sglang", "trtllm"):
        path = tmp_path / "data" / "b200_sxm" / "gemm" / whose / "1.0" / "gemm_perf.parquet"
        path.parent.mkdir(parents=True)
        path.touch()

    found = find_tables(str(tmp_path), "b200_sxm", "any", framework)

    assert [path.parent.parent.name for path in found["gemm"]] == [framework]


def test_a_folder_without_tables_is_refused(tmp_path):
    (tmp_path / "h100_sxm").mkdir()

    with pytest.raises(InputErrors, match="h100_sxm: no tables of vllm"):
        find_tables(str(tmp_path), None, "h100-sxm-80gb", "vllm")


def test_a_package_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)

    with pytest.raises(InputErrors, match=r"latency.path: .*pip install 'simulator\[operators\]'"):
        find_tables(None, None, "h100-sxm-80gb", "vllm")


# ---- columns

def test_plain_packed_and_parquet_files_say_the_same(tmp_path):
    plain = write_gemm(tmp_path, "kernel,gemm_dtype,m,n,k,latency_ms\nx,fp8,1,2,3,0.5\nx,fp8,2,2,3,0.75\n")
    packed = tmp_path / "b" / "gemm_perf.csv.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    other = parquet(tmp_path / "c" / "gemm_perf.parquet", framework=["v"] * 2, gemm_dtype=["fp8"] * 2, m=[1, 2],
                    n=[2, 2], k=[3, 3], latency=[0.5, 0.75])

    for path in (plain, packed, other):
        columns = read_columns(path)

        assert {name: values.tolist() for name, values in columns.items()} == {
            "gemm_dtype": ["fp8"] * 2, "m": [1.0, 2.0], "n": [2.0] * 2, "k": [3.0] * 2, "latency_ms": [0.5, 0.75]}


@pytest.mark.parametrize(("text", "message"), [
    (f"{GEMM}\nfp8,1,2,x,0.5\n", 'gemm_perf.csv:2: k: expected a finite number >= 0, found "x"'),
    (f"{GEMM}\nfp8,1,2,3\n", "gemm_perf.csv:2: expected 5 cells"),
    (f"{GEMM}\nfp8,1,2,3,0\n", "row 1: latency: expected a time above 0, found 0"),
    ("gemm_dtype,m\nfp8,1\n", "gemm_perf.csv:1: latency: no such column"),
    ("", "expected a line of column names and rows"),
])
def test_faults_of_a_csv_file_name_their_place(tmp_path, text, message):
    with pytest.raises(InputErrors) as raised:
        read_columns(write_gemm(tmp_path, text))

    assert message in str(raised.value)


def test_a_damaged_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "gemm_perf.parquet"
    path.write_bytes(b"PAR1 or so")

    with pytest.raises(InputErrors, match=r"gemm_perf\.parquet: cannot be read"):
        read_columns(path)


def test_an_empty_cell_of_a_parquet_file_is_named(tmp_path):
    path = parquet(tmp_path / "gemm_perf.parquet", gemm_dtype=["fp8"] * 2, m=[1, None], latency=[1.0, 2.0])

    with pytest.raises(InputErrors, match="row 2: m: is empty"):
        read_columns(path)


# ---- conversion

def test_a_table_is_converted_once(tmp_path, monkeypatch):
    path = write_gemm(tmp_path, "\n".join([GEMM, *gemm_rows()]) + "\n")
    first, digest = columns_of(path, str(tmp_path / "cache"))
    monkeypatch.setattr(operator_cache, "read_columns", None)

    again, _ = columns_of(path, str(tmp_path / "cache"))

    assert sorted(again) == sorted(first)
    assert all(np.array_equal(again[name], first[name]) for name in first)
    kept = f"operators-{operator_cache.FORMAT}-{digest[:32]}.h5"
    assert [each.name for each in (tmp_path / "cache").iterdir()] == [kept]


def test_a_changed_table_is_converted_anew(tmp_path):
    path = write_gemm(tmp_path, f"{GEMM}\nfp8,1,2,3,0.5\n")
    columns_of(path, str(tmp_path / "cache"))
    write_gemm(tmp_path, f"{GEMM}\nfp8,1,2,3,0.25\n")

    assert columns_of(path, str(tmp_path / "cache"))[0]["latency_ms"].tolist() == [0.25]


@pytest.mark.parametrize("harm", ["cut", "number"])
def test_a_damaged_conversion_is_made_again(tmp_path, harm):
    path = write_gemm(tmp_path, f"{GEMM}\nfp8,1,2,3,0.5\n")
    columns_of(path, str(tmp_path / "cache"))
    kept = next((tmp_path / "cache").iterdir())
    if harm == "cut":
        kept.write_bytes(kept.read_bytes()[:100])
    else:
        with h5py.File(kept, "r+") as file:
            file["latency_ms"][0] = 7.0
    notes = []

    assert columns_of(path, str(tmp_path / "cache"), notes)[0]["latency_ms"].tolist() == [0.5]
    assert notes == [f"{kept}: was damaged, or made from other inputs; it was made again"]


@pytest.mark.parametrize("harm", ["codes", "names"])
def test_a_damaged_text_is_not_believed(tmp_path, harm):
    path = write_gemm(tmp_path, f"{GEMM}\nfp8,1,2,3,0.5\nbfloat16,1,2,3,0.5\n")
    columns_of(path, str(tmp_path / "cache"))
    with h5py.File(next((tmp_path / "cache").iterdir()), "r+") as file:
        if harm == "codes":
            file["gemm_dtype"][:] = [0, 0]
        else:
            file["gemm_dtype"].attrs["names"] = ["bfloat16", "fp4"]

    assert columns_of(path, str(tmp_path / "cache"))[0]["gemm_dtype"].tolist() == ["fp8", "bfloat16"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    path = write_gemm(tmp_path, f"{GEMM}\nfp8,1,2,3,0.5\n")
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(InputErrors, match=r"latency\.cache_directory: .* cannot be written"):
        columns_of(path, str(tmp_path / "cache"))
