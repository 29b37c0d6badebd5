"""Files that are made to take all memory, or all time."""
import gzip
import zlib

import pytest

from simulator.core.csv_columns import file_bytes
from simulator.errors import InputErrors
from simulator.workload.reading import files
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import read_bytes, read_pieces
from simulator.workload.reading.json_lines import decoded_lines
from simulator.workload.reading.yaml_files import read_yaml


@pytest.fixture
def small(monkeypatch):
    """Let limits be small."""
    monkeypatch.setattr("simulator.core.unpacking.LEAST_LIMIT", 2**16)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2**12)
    monkeypatch.setattr("simulator.workload.reading.json_lines.MAX_LINE_BYTES", 2**12)


def bomb(path, text, times):
    with gzip.open(path, "wb") as file:
        for _ in range(times):
            file.write(text)
    return path


def fault(call, *arguments, **keys):
    with pytest.raises(InputErrors) as caught:
        call(*arguments, **keys)
    [only] = caught.value.faults
    return only


def drained(path, **keys):
    return sum(map(len, read_pieces(path, **keys)))


@pytest.mark.parametrize("read", [read_bytes, drained])
def test_zeros_end_at_the_first(tmp_path, read):
    path = bomb(tmp_path / "z.gz", bytes(2**20), 64)

    assert fault(read, path) == f"{path}: not UTF-8 text (byte 0x00 after 0 bytes)"


@pytest.mark.parametrize("read", [read_bytes, drained])
def test_what_expands_too_far_is_refused(tmp_path, small, read):
    path = bomb(tmp_path / "n.gz", b"\n" * 2**20, 8)
    limit = max(2**16, 100 * path.stat().st_size)

    told = "max_bytes says how many it may have"
    assert fault(read, path) == f"{path}: more than {limit:,} bytes of text, 100 times what it takes here; {told}"
    assert fault(read, path, max_bytes=100) == f"{path}: more than 100 bytes of text; {told}"
    assert (len(read(path, max_bytes=2**23)) if read is read_bytes else read(path, max_bytes=2**23)) == 2**23


def test_a_plain_file_has_a_bound_only_where_it_is_said(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"x" * 1000)

    assert len(read_bytes(tmp_path / "t.csv")) == len(read_bytes(tmp_path / "t.csv", 1000)) == 1000
    assert "more than 999 bytes of text;" in fault(read_bytes, tmp_path / "t.csv", 999)


def test_a_line_has_a_limit(tmp_path, small):
    (tmp_path / "t.csv").write_bytes(b"a\n" + b"x" * 9000)

    assert fault(drained, tmp_path / "t.csv", size=100) == (
        f"{tmp_path}/t.csv:2: a line of more than 4,096 bytes, which no table has")
    faults = Faults("m.jsonl")
    assert [number for number, _ in decoded_lines(b"{}\n" + b" " * 9000 + b"{}\n{}", dict, "x", faults)] == [1, 3]
    with pytest.raises(InputErrors, match=r"m\.jsonl:2: a line of more than 4,096 bytes"):
        faults.raise_if_any()


@pytest.mark.parametrize(("magic", "name"), [
    (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh9", "bzip2"), (b"PK\x03\x04", "zip")])
def test_other_compressions_are_named(tmp_path, magic, name):
    (tmp_path / "t").write_bytes(magic + b"rest")

    assert fault(read_bytes, tmp_path / "t") == (
        f"{tmp_path}/t: {name} data; expected plain text, or gzip: decompress it first")


def test_tables_of_profiles_have_a_limit_too(tmp_path, small):
    path = tmp_path / "p.csv.gz"
    path.write_bytes(gzip.compress(b"0" * 2**24))

    assert "times what they take here" in fault(file_bytes, path)
    assert zlib.decompress(zlib.compress(b"x")) == b"x"


@pytest.mark.slow
def test_aliases_of_aliases_are_refused(tmp_path):
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (tmp_path / "b.yaml").write_text("\n".join(levels))

    assert fault(read_yaml, tmp_path / "b.yaml") == (
        f"{tmp_path}/b.yaml: its aliases stand for more than 10,000,000 values; write them out")
    (tmp_path / "c.yaml").write_text("a: &a [*a]")
    assert "its aliases stand for more than" in fault(read_yaml, tmp_path / "c.yaml")
    (tmp_path / "d.yaml").write_text("[" * 5000 + "]" * 5000)
    assert "no YAML" in fault(read_yaml, tmp_path / "d.yaml")
    (tmp_path / "e.yaml").write_text("a: &a [1, 2]\nb: *a\n")
    assert read_yaml(tmp_path / "e.yaml") == {"a": [1, 2], "b": [1, 2]}
