"""Packed chunks: every inflater, and HDF5, reads them."""
import zlib

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.core.packed_rows import RowPacker

CHECK_BYTES = 4
FILTERS = {"shuffle": True, "compression": "gzip", "compression_opts": 1, "fletcher32": True}


def planes_of(rows, chunk_rows):
    """Return what HDF5's shuffle makes of a chunk: first all first bytes, then all second ones."""
    padded = np.zeros((chunk_rows, rows.itemsize), np.uint8)
    padded[:len(rows)] = rows.view((np.uint8, rows.itemsize)).reshape(len(rows), rows.itemsize)
    return padded.T.tobytes()


def packed(rows, chunk_rows=None):
    return RowPacker(chunk_rows or len(rows), rows.dtype).pack(rows).tobytes()


def assert_inflates(rows, chunk_rows=None):
    chunk_rows = chunk_rows or len(rows)
    assert zlib.decompress(packed(rows, chunk_rows)[:-CHECK_BYTES]) == planes_of(rows, chunk_rows)


def noise(number, seed=1):
    return np.random.default_rng(seed).integers(0, 256, number).astype(np.uint8)


# A plane of any make: constant, noise, runs, few different bytes, something repeated.
PLANES = st.sampled_from([
    lambda n: np.full(n, 7, np.uint8),
    noise,
    lambda n: np.repeat(noise(n), 1 + noise(n, 2) // 8)[:n],
    lambda n: np.random.default_rng(3).geometric(0.3, n).clip(0, 255).astype(np.uint8),
    lambda n: np.resize(noise(100), n),
    lambda n: np.resize(np.concatenate([noise(700), np.zeros(5, np.uint8)]), n),
    lambda n: (np.arange(n) >> 5).astype(np.uint8),
])


@settings(max_examples=80, deadline=None)
@given(st.lists(PLANES, min_size=1, max_size=12), st.integers(1, 3000), st.integers(0, 40))
def test_what_is_packed_inflates_to_the_shuffled_rows(planes, num_rows, missing):
    columns = np.column_stack([plane(num_rows) for plane in planes])

    assert_inflates(columns.view(f"V{len(planes)}")[:, 0], num_rows + missing)


@settings(max_examples=80, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.integers(1, 9))
def test_any_bytes_inflate(data, row_bytes):
    assert_inflates(np.resize(np.frombuffer(data, np.uint8), row_bytes * 50).view(f"V{row_bytes}"))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 8, 257, 258, 259, 260, 261, 516, 517, 518, 65535, 65536, 70000])
def test_runs_of_every_length_inflate(num_rows):
    rows = np.zeros(num_rows, np.uint8)
    assert_inflates(rows)
    rows[num_rows // 2:] = 200
    assert_inflates(rows)
    assert_inflates(noise(num_rows))


@pytest.mark.parametrize("distance", [200, 257, 258, 4096, 4097, 8192, 8193, 16384, 16385, 24576, 24577, 32000, 32500])
def test_what_came_before_is_found_at_every_distance(distance):
    # 200 bytes, 50 others over and over, and the 200 again: these take a match and no more
    rows = np.resize(noise(50), 32768)
    rows[:200] = rows[distance:distance + 200] = noise(200, seed=2)
    assert_inflates(rows)
    repeated = len(packed(rows))
    rows[distance:distance + 200] = noise(200, seed=3)
    assert len(packed(rows)) - repeated > 190


@pytest.mark.parametrize("period", range(1, 12))
def test_short_periods_inflate(period):
    assert_inflates(np.resize(noise(period), 5000 + period))


def test_codes_longer_than_deflate_allows_are_shortened():
    # Fibonacci's numbers make the longest codes: 21 different bytes would take up to 20 bits
    counts = [1, 1]
    while len(counts) < 21:
        counts.append(counts[-1] + counts[-2])
    rows = np.repeat(np.arange(21), counts).astype(np.uint8)
    assert_inflates(np.random.default_rng(1).permutation(rows))


def test_repetition_and_rare_bytes_are_small():
    number = np.arange(8192, dtype=np.int64)
    few = np.random.default_rng(1).geometric(0.5, 8192).astype(np.uint8)       # 2 bits each

    assert len(packed(number)) < 8192 * 8 // 80
    assert len(packed(few)) < 8192 * 2.3 / 8
    assert len(packed(noise(8192))) < 8192 + 40


def test_bytes_of_no_field_are_written_as_zero():
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i4", "i8"], "offsets": [0, 8], "itemsize": 24})
    rows = np.zeros(10, dtype)
    rows.view((np.uint8, 24)).reshape(10, 24)[:] = 255

    found = np.frombuffer(zlib.decompress(packed(rows)[:-CHECK_BYTES]), np.uint8).reshape(24, 10)

    assert found[:, 0].tolist() == [255] * 4 + [0] * 4 + [255] * 8 + [0] * 8


def test_equal_columns_are_written_alike():
    rows = np.zeros(4096, [("a", "i4"), ("b", "i4")])
    rows["a"] = rows["b"] = np.random.default_rng(1).integers(0, 2**31, 4096)
    assert_inflates(rows)
    rows["a"] = rows["b"] = np.random.default_rng(1).geometric(0.3, 4096)
    assert_inflates(rows)
    rows["a"] = rows["b"] = np.arange(4096) // 1000
    assert_inflates(rows)


def test_hdf5_reads_it_and_finds_damage(tmp_path):
    rows = np.zeros(1000, [("a", "i8"), ("b", "f4"), ("c", "i1")])
    rows["a"], rows["b"] = np.arange(1000) ** 3, np.linspace(0, 1, 1000)
    chunk = packed(rows)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("whole", "damaged"):
            file.create_dataset(name, (1000,), rows.dtype, chunks=(1000,), **FILTERS)
        file["whole"].id.write_direct_chunk((0,), chunk)
        file["damaged"].id.write_direct_chunk((0,), chunk[:50] + bytes([chunk[50] ^ 1]) + chunk[51:])

        assert np.array_equal(file["whole"][:], rows)
        with pytest.raises(OSError, match="read"):
            file["damaged"][:]


@pytest.mark.parametrize("size", [4, 5, 719, 720, 721, 722, 5000, 5001])
def test_the_checksum_is_that_of_hdf5(tmp_path, size):
    # noise is stored as it comes, so that the size of a chunk is known: both parities, both sides of 360 words
    with h5py.File(tmp_path / "a.h5", "w") as file:
        table = file.create_dataset("a", (size,), np.uint8, chunks=(size,), **FILTERS)
        table.id.write_direct_chunk((0,), packed(noise(size)))
        assert table[:].tolist() == noise(size).tolist()


def test_chunks_that_are_too_large_or_empty_are_refused():
    for number in (0, 5):
        with pytest.raises(ValueError, match=f"1 to 4 rows, not {number}"):
            RowPacker(4, np.dtype("i8")).pack(np.zeros(number, np.int64))
