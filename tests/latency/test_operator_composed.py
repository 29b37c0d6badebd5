"""Composed tables are kept: the same bytes with and without, made again wherever something that enters has changed."""
import errno
import json
import os
import shutil
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from simulator.collective.base import CollectiveModel
from simulator.latency.operators import composed
from simulator.latency.operators.composition import Composer
from simulator.latency.operators.model import Operators
from support.operator_profiles import gemm_rows, write_layers, write_tables
from support.small_models import DENSE, MIXTURE, deploy


class Slow(CollectiveModel):
    """Any collective takes `seconds`."""

    seconds = 1e-3

    def predict(self, group, kind, num_bytes):
        return self.seconds


@pytest.fixture
def folder(tmp_path):
    return write_tables(tmp_path / "tables")


@pytest.fixture
def compositions(monkeypatch):
    """Return a list that grows by one with each composition."""
    made, compose = [], Composer.compose

    def counted(self):
        made.append(self)
        return compose(self)
    monkeypatch.setattr(Composer, "compose", counted)
    return made


def read(folder, cache, model=DENSE, collective=None, cuda_graph=True, **ways):
    parameters = Operators.Parameters(path=str(folder), cache_directory=str(cache), cuda_graph=cuda_graph)
    return Operators.read(parameters, deploy(model, **ways), collective)


def kept_in(cache):
    return sorted((cache / "composed").iterdir())


def plain(value):
    """Return what a reading holds, arrays as bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(name, plain(each)) for name, each in value.items()]
    if hasattr(value, "_fields"):
        return [plain(each) for each in value]
    return plain(vars(value)) if hasattr(value, "__dict__") else repr(value)


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
@pytest.mark.parametrize("ways", [{}, {"tensor_parallel": 2}])
def test_what_was_kept_is_what_was_composed(folder, tmp_path, compositions, model, ways):
    first, again = (read(folder, tmp_path / "cache", model, **ways) for _ in range(2))

    assert len(compositions) == 1
    assert plain(again) == plain(first) == plain(read(folder, tmp_path / "other", model, **ways))


def test_a_profile_of_layers_is_kept_as_well(tmp_path, compositions):
    folder = write_layers(tmp_path / "tp1")

    assert plain(read(folder, tmp_path / "cache")) == plain(read(folder, tmp_path / "cache"))
    assert len(compositions) == 1


@pytest.mark.parametrize("other", [
    {"model": MIXTURE}, {"tensor_parallel": 2}, {"cuda_graph": False}])
def test_what_enters_has_files_of_its_own(folder, tmp_path, compositions, other):
    read(folder, tmp_path / "cache")
    read(folder, tmp_path / "cache", **other)

    assert len(compositions) == len(kept_in(tmp_path / "cache")) == 2


def test_a_changed_table_is_composed_anew(folder, tmp_path):
    first = read(folder, tmp_path / "cache")
    write_tables(folder, gemm=gemm_rows(factor=2.0))

    second = read(folder, tmp_path / "cache")

    assert (second.tables.tokens_ns["qkv"][1:] > first.tables.tokens_ns["qkv"][1:]).all()
    assert plain(second) == plain(read(folder, tmp_path / "other"))
    assert len(kept_in(tmp_path / "cache")) == 1


def test_a_table_that_comes_or_goes_is_seen(tmp_path, compositions):
    folder = write_tables(tmp_path / "tables", moe=None)
    missing = [read(folder, tmp_path / "cache", MIXTURE).missing]
    write_tables(folder)
    missing.append(read(folder, tmp_path / "cache", MIXTURE).missing)
    (folder / "moe_perf.csv").unlink()
    missing.append(read(folder, tmp_path / "cache", MIXTURE).missing)

    assert ["experts" in each for each in missing] == [True, False, True]


def test_another_version_composes_anew(folder, tmp_path, compositions, monkeypatch):
    read(folder, tmp_path / "cache")
    monkeypatch.setattr(composed, "FORMAT", composed.FORMAT + 1)
    read(folder, tmp_path / "cache")

    assert len(compositions) == 2


def test_a_changed_source_of_the_package_is_another_version(tmp_path):
    package, compiled = composed.PACKAGE, shutil.ignore_patterns("*.so", "__pycache__")
    for copy in ("same", "other"):
        for name in composed.SOURCES:
            shutil.copytree(package / name, tmp_path / copy / name, ignore=compiled)
    with open(tmp_path / "other" / "latency" / "operators" / "curves.py", "a", encoding="utf-8") as source:
        source.write("\n")

    here, same, other = map(composed.sources_digest, (package, tmp_path / "same", tmp_path / "other"))

    assert here == same != other


@pytest.mark.parametrize("damage", [
    lambda whole: b"", lambda whole: whole[:40], lambda whole: whole[:300], lambda whole: whole[:-1],
    lambda whole: b"not NumPy", lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    lambda whole: whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:],
    lambda whole: whole.replace(b"tokens_ns.qkv", b"tokens_ns.qkw", 1)],
    ids=["empty", "magic", "header", "last byte", "other file", "flipped time", "flipped fact", "flipped name"])
def test_a_damaged_file_is_told_of_and_made_again(folder, tmp_path, compositions, damage):
    first = read(folder, tmp_path / "cache")
    [file] = kept_in(tmp_path / "cache")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))

    second = read(folder, tmp_path / "cache")

    assert len(compositions) == 2
    assert second.notes == [f"{file}: was damaged, or made from other inputs; it was made again"]
    assert file.read_bytes() == whole
    assert plain(read(folder, tmp_path / "cache")) == plain(first)


def test_a_folder_that_cannot_be_written_is_no_fault(folder, tmp_path, compositions):
    first = read(folder, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache" / "composed")
    (tmp_path / "cache" / "composed").write_text("a file where the folder should be")

    assert plain(read(folder, tmp_path / "cache")) == plain(first)
    assert len(compositions) == 2


def test_a_full_disk_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(file, *arguments, **named):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(np, "save", full)

    read(folder, tmp_path / "cache")

    assert kept_in(tmp_path / "cache") == []


def test_a_collective_model_that_answers_otherwise_is_heard(folder, tmp_path, compositions, monkeypatch):
    def all_reduce_ns():
        return read(folder, tmp_path / "cache", collective=Slow(), tensor_parallel=2).tables.tokens_ns["all_reduce"][5]

    # 2 layers, 2 all-reduces each
    assert [all_reduce_ns(), all_reduce_ns()] == [4e6, 4e6]
    assert len(compositions) == 1
    monkeypatch.setattr(Slow, "seconds", 2e-3)
    assert [all_reduce_ns(), all_reduce_ns()] == [8e6, 8e6]
    assert len(compositions) == 2


def test_what_was_not_used_for_longest_goes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(composed, "NUM_KEPT", 2)
    cache, ways = tmp_path / "cache", [{}, {"tensor_parallel": 2}, {"cuda_graph": False}]
    files = []
    for age, each in enumerate(ways[:2]):
        read(folder, cache, **each)
        files += [file for file in kept_in(cache) if file not in files]
        os.utime(files[-1], (1000.0 + age, 1000.0 + age))
    read(folder, cache)                         # used again: the second is the oldest now
    read(folder, cache, **ways[2])

    assert files[0] in kept_in(cache)
    assert files[1] not in kept_in(cache)
    assert len(kept_in(cache)) == 2


def _predicted(folder, cache):
    model = Operators(Operators.Parameters(path=folder, cache_directory=cache), deploy(DENSE))
    return json.dumps([model.predict(decode=[16] * 4), model.predict(prefill=[(64, 0)]), model.provenance()])


def test_processes_that_write_at_once_do_not_clash(folder, tmp_path):
    cache = tmp_path / "cache"
    with get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_predicted, [(str(folder), str(cache))] * 4, chunksize=2)

    assert set(found) == {_predicted(str(folder), str(tmp_path / "other"))}
    assert [Path(file).suffix for file in kept_in(cache)] == [".npy"]
