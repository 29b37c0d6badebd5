"""Files in pieces give what they give whole."""
import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import read_bytes, read_pieces
from simulator.workload.reading.tables import scan_pieces

KNOWN = {"a": Column(Kind.INTEGER, 0, required=True), "b": Column(Kind.TEXT), "p": Column(Kind.PROMPT)}


def outcome(path, pieces):
    """Return what a file gives as plain values, or its faults."""
    faults = Faults("f")
    try:
        scan = scan_pieces("f", pieces, KNOWN, ("a", "b", "p"), faults)
        faults.raise_if_any()
    except InputErrors as errors:
        return errors.faults
    return ({name: values.tolist() for name, values in scan.values.items()}, scan.texts,
            [part.tolist() for part in scan.segments], scan.lines.tolist())


CELLS = st.sampled_from(["1", "22", "x", "", '"q"', '"two\nlines"', '"doubled "" quote"', '"open', "é", "3"])
PROMPTS = st.sampled_from(["", "s:4", "s:4/t:5", "t:1", "s", '"t:2"'])
ROWS = st.lists(st.tuples(st.sampled_from(["1", "7", "12", "x"]), CELLS, PROMPTS).map(",".join) | st.just(""),
                min_size=1, max_size=12)


@settings(max_examples=200)
@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 40))
def test_a_file_in_pieces_is_read_as_it_is_whole(tmp_path_factory, rows, end, ends, size):
    path = tmp_path_factory.getbasetemp() / "pieces.csv"
    text = ("a,b,p" + end + end.join(rows) + end * ends).encode()
    whole = outcome(path, (text,))

    for data in (text, gzip.compress(text)):
        path.write_bytes(data)
        pieces = list(read_pieces(path, size))
        assert b"".join(pieces) == text == read_bytes(path)
        found = outcome(path, iter(pieces))
        if '"open' in text.decode() and isinstance(whole[0], str):
            assert found[0] == whole[0]         # after a quote that does not end, rows may be cut elsewhere
        else:
            assert found == whole


def test_lines_count_on_over_pieces(tmp_path):
    path = tmp_path / "f.csv"
    path.write_bytes(b"a,b,p\n1,x,\n\n2,y,\nz,\xff,\n")

    with pytest.raises(InputErrors) as caught:
        scan_pieces(path, read_pieces(path, 8), KNOWN, ("a",), Faults(path))
    assert caught.value.faults == (f"{path}:5: not UTF-8 text (byte 0xff)",)


@pytest.mark.parametrize(("content", "message"), [
    (None, "no such file"), (gzip.compress(b"a\n1\n" * 1000, mtime=0)[:-30], "damaged gzip data")])
def test_files_that_cannot_be_read_are_named(tmp_path, content, message):
    path = tmp_path / "f.csv"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputErrors, match=message):
        list(read_pieces(path))
