"""CSV and Parquet have every table, with labels in place of codes."""
import sys

import pandas as pd
import pytest

import simulator
from results.export.runs import export, small_run, table
from simulator import cli
from simulator.results.export import plain, text


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("small"))


def test_tables_are_those_of_the_run(results, monkeypatch):
    monkeypatch.setattr(plain, "BLOCK_ROWS", 2)         # blocks meet
    exported = export(results, "csv", "--quiet")

    assert {path.name for path in exported.iterdir()} == {
        "requests.csv", "iterations.csv", "replicas.csv", "token_times.csv"}
    requests = table(exported, "requests.csv")
    assert requests["request_id"].tolist() == ["first", "second", "third"]
    assert requests["status"].tolist() == ["completed"] * 3
    assert requests["tenant"].fillna("").tolist() == ["a, b", "", "a, b"]
    assert table(exported, "token_times.csv").to_numpy().tolist() == [
        [0, 10_000_000], [0, 20_000_000], [1, 20_000_000], [1, 30_000_000], [2, 30_000_000]]
    iterations = simulator.load_results(results).iterations
    assert table(exported, "iterations.csv")["start_ns"].tolist() == iterations["start_ns"].tolist()


def test_parquet_has_what_csv_has(results):
    pytest.importorskip("pyarrow")
    as_csv, as_parquet = export(results, "csv", "--quiet", "--overwrite"), export(results, "parquet", "--quiet")

    for path in as_parquet.iterdir():
        frame = pd.read_parquet(path)
        assert frame.equals(pd.read_csv(as_csv / f"{path.stem}.csv", keep_default_na=False).astype(frame.dtypes))


def test_without_pyarrow_it_says_how_to_install_it(results, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert cli.main(["export", str(results), "--as", "parquet", "--overwrite"]) == 2
    assert "pip install 'simulator[parquet]'" in capsys.readouterr().err


def test_blocks_cover_all_rows_once(monkeypatch):
    monkeypatch.setattr(text, "BLOCK_ROWS", 3)
    assert list(text.blocks(7)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert not list(text.blocks(0))
