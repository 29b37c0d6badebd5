"""Columns that are read past HDF5's filters are those that HDF5 reads."""
import h5py
import numpy as np
import pytest

from results.fakes import small_run
from results.test_hdf5 import write
from simulator.results import unpacked_columns
from simulator.results.blocks import BLOCK_ROWS
from simulator.results.packed_table import FILTERS, PackedTable, chunk_rows
from simulator.results.reader import Reader
from simulator.results.unpacked_columns import ALL, column_blocks

DTYPE = np.dtype([("small", "<i4"), ("time_ns", "<i8"), ("flag", "i1"), ("share", "<f8")])


def table(count):
    rows = np.zeros(count, DTYPE)
    draw = np.random.default_rng(1)
    rows["small"], rows["flag"] = draw.integers(-5, 300, count), draw.integers(-1, 2, count)
    rows["time_ns"], rows["share"] = np.cumsum(draw.integers(0, 1 << 40, count)), draw.normal(size=count)
    return rows


def packed(path, rows):
    """Write rows as results are written; return the open file."""
    file = h5py.File(path, "w")
    size = chunk_rows(DTYPE, None)
    dataset = file.create_dataset("rows", (0,), DTYPE, maxshape=(None,), chunks=(size,), **FILTERS)
    writer = PackedTable(dataset, DTYPE)
    writer.append(rows)
    writer.flush()
    return file


@pytest.fixture
def past_hdf5(monkeypatch):
    """Count the blocks that are read past HDF5."""
    blocks, unpacked = [], unpacked_columns._unpacked
    monkeypatch.setattr(unpacked_columns, "_unpacked", lambda *given: (
        blocks.append(block) or block for block in unpacked(*given)))
    return blocks


@pytest.mark.parametrize("count", [0, 1, 1 << 15, (1 << 15) + 1, 100_000])
@pytest.mark.parametrize("block_rows", [1, 1 << 16, BLOCK_ROWS])
def test_columns_are_those_of_the_table(tmp_path, past_hdf5, count, block_rows):
    rows = table(count)
    with packed(tmp_path / "a.h5", rows) as file:
        found = list(column_blocks(file["rows"], ("time_ns", "flag", "share", "small"), block_rows))

    assert len(found) == len(past_hdf5) == -(-count // max(block_rows, 1 << 15))
    for name in DTYPE.names if found else ():
        column = np.concatenate([block[name] for block in found])
        assert column.dtype == DTYPE[name] and np.array_equal(column, rows[name])


def test_numbers_without_columns_are_one_column(tmp_path, past_hdf5):
    write(tmp_path / "a", small_run(), token_times=True)
    with h5py.File(tmp_path / "a" / "results.h5") as file:
        times_ns = file["token_times/times_ns"]
        found = [block[ALL].tolist() for block in column_blocks(times_ns, (ALL,))]

        assert (found, len(past_hdf5)) == ([times_ns[:].tolist()], 1)


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip"}, {"compression": "lzf"}])
def test_a_table_of_other_filters_is_left_to_hdf5(tmp_path, past_hdf5, filters):
    rows = table(10)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("rows", data=rows, chunks=(4,), **filters)
        found = [block["small"].tolist() for block in column_blocks(dataset, ("small",), 4)]

    assert found == [rows["small"][first:first + 4].tolist() for first in (0, 4, 8)]
    assert not past_hdf5


def test_a_flipped_byte_is_left_to_hdf5_which_names_it(tmp_path, past_hdf5):
    rows = table(100_000)
    with packed(tmp_path / "a.h5", rows) as file:
        chunk = file["rows"].id.get_chunk_info(1)
    with open(tmp_path / "a.h5", "r+b") as stream:
        stream.seek(chunk.byte_offset + chunk.size // 2)
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 1]))

    with h5py.File(tmp_path / "a.h5") as file:
        blocks = column_blocks(file["rows"], ("small",), 1 << 15)
        assert np.array_equal(next(blocks)["small"], rows["small"][:1 << 15])
        with pytest.raises(OSError, match="filter"):
            next(blocks)
    assert len(past_hdf5) == 1


def test_a_reader_gives_the_columns_that_are_there(tmp_path, monkeypatch):
    write(tmp_path / "a", small_run())
    reader = Reader(tmp_path / "a" / "results.h5")
    wanted = ("status", "completed_ns", "no_such_column")
    past = reader.columns("requests", wanted)
    monkeypatch.setattr(unpacked_columns, "FILTERS", ())
    by_hdf5 = reader.columns("requests", wanted)

    assert past.keys() == by_hdf5.keys() == {"status", "completed_ns"}
    assert all(np.array_equal(past[name], by_hdf5[name]) for name in past)
    with pytest.raises(LookupError):
        reader.columns("decisions", ("request",))
