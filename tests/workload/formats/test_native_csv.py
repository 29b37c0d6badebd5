"""The native request trace."""
import csv
import gzip
import io
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors
from simulator.workload.build import build_workload
from simulator.workload.columns import LABELS
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.formats.native_names import NativeParameters
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.reading.tables import read_integer_column
from simulator.workload.types.trace import Trace, TraceParameters

HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"


def read(text):
    return NativeCsv().read("traces/t.csv", text.encode() if isinstance(text, str) else text)


def faults(text):
    with pytest.raises(InputErrors) as caught:
        read(text)
    return list(caught.value.faults)


def fault(text):
    [only] = faults(text)
    return only


def build(tmp_path, text, **scales):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return build_workload(Trace(TraceParameters(path=str(path), parameters=None, **scales)).columns(RandomStreams(0)))


def test_a_row_becomes_a_request():
    columns = read(f"{HEADER}\n0.5,100,20\n1.25,7,0\n")

    assert columns.arrival_ns.tolist() == [500_000_000, 1_250_000_000]
    assert columns.prompt_tokens.tolist() == [100, 7]
    assert columns.output_tokens.tolist() == [20, 0]


def test_columns_may_stand_in_any_order():
    columns = read("num_decode_tokens, arrived_at ,num_prefill_tokens\n20,0.5,100")

    assert (columns.arrival_ns[0], columns.prompt_tokens[0], columns.output_tokens[0]) == (500_000_000, 100, 20)


@pytest.mark.parametrize("text", [
    f"{HEADER}\r\n0.5,100,20\r\n",              # CRLF
    f"\ufeff{HEADER}\n0.5,100,20",              # byte order mark, no newline at the end
    f"{HEADER}\n0.5,100,20\n\n\n",              # blank lines at the end, and before the row
    f"{HEADER}\r\n0.5,100,20\r\n  \r\n\t\r\n",
    f"{HEADER}\n\n \n0.5,100,20",
    f'"arrived_at",{HEADER[11:]}\n"0.5","100",20\n',
    f"{HEADER}\n 0.5 ,\t100, 20\n",
])
def test_the_ways_to_write_a_table_are_equal(text):
    columns = read(text)

    assert (columns.arrival_ns.tolist(), columns.prompt_tokens.tolist(), columns.output_tokens.tolist()) == (
        [500_000_000], [100], [20])


@pytest.mark.parametrize(("text", "ns"), [
    ("0", 0),
    ("7", 7_000_000_000),
    (".5", 500_000_000),
    ("3.", 3_000_000_000),
    ("0.1234567894999", 123_456_789),
    ("0.1234567895", 123_456_790),              # half a nanosecond rounds up
    ("0.0000000004", 0),
    ("0.99999999950", 1_000_000_000),
    ("1e-05", 10_000),
    ("1.5E+3", 1_500_000_000_000),
    ("123456789e-12", 123_457),                 # 123456.789 ns
    ("4503599627.370497", 4_503_599_627_370_497_000),       # a float of seconds would be 0.5 us off
    ("9e9", MAX_TIME_NS),
    ("9000000000.000000000", MAX_TIME_NS),
    ("0e99999999999999999999", 0),
    ("1e-99999999999999999999", 0),
    ("00000000000000000000000000001", 1_000_000_000),
])
def test_seconds_become_the_nearest_nanosecond(text, ns):
    assert read(f"{HEADER}\n{text},1,1\n").arrival_ns[0] == ns


@given(st.integers(0, 10**24), st.integers(-30, 12), st.sampled_from("fE"))
def test_any_decimal_becomes_the_nearest_nanosecond(digits, exponent, notation):
    with localcontext(prec=60):
        seconds = Decimal(digits).scaleb(exponent)
        nearest = int((seconds * 10**9).quantize(Decimal(1), ROUND_HALF_UP)) if seconds < 10**12 else MAX_TIME_NS + 1
        text = f"{HEADER}\n{seconds:{notation}},1,1\n"

    def read_seconds():
        return NativeCsv(NativeParameters(time_unit="s")).read("t.csv", text.encode())

    if nearest <= MAX_TIME_NS:
        assert read_seconds().arrival_ns.tolist() == [nearest]
    else:
        with pytest.raises(InputErrors, match=r"expected at most 9e\+09 s"):
            read_seconds()


@pytest.mark.parametrize(("row", "message"), [
    ("1,-3,1", 'num_prefill_tokens: expected an integer >= 1, found "-3"'),
    ("1,0,1", 'num_prefill_tokens: expected an integer >= 1, found "0"'),
    ("1,1,-3", 'num_decode_tokens: expected an integer >= 0, found "-3"'),
    ("1,1,2.0", 'num_decode_tokens: expected an integer >= 0, found "2.0"'),
    ("1,1,1_0", 'num_decode_tokens: expected an integer >= 0, found "1_0"'),
    ("1,1,0x1", 'num_decode_tokens: expected an integer >= 0, found "0x1"'),
    ("1,1,", 'num_decode_tokens: expected an integer >= 0, found ""'),
    ("1,1,-", 'num_decode_tokens: expected an integer >= 0, found "-"'),
    ("1,1,2147483648", 'num_decode_tokens: expected an integer <= 2147483647, found "2147483648"'),
    ("1,1,99999999999999999999", 'num_decode_tokens: expected an integer <= 2147483647, found "99999999999999999999"'),
    ("1,1,-99999999999999999999", 'num_decode_tokens: expected an integer >= 0, found "-99999999999999999999"'),
    ("-1,1,1", 'arrived_at: expected a number of seconds >= 0, found "-1"'),
    ("nan,1,1", 'arrived_at: expected a number of seconds >= 0, found "nan"'),
    ("inf,1,1", 'arrived_at: expected a number of seconds >= 0, found "inf"'),
    ("1e,1,1", 'arrived_at: expected a number of seconds >= 0, found "1e"'),
    (".,1,1", 'arrived_at: expected a number of seconds >= 0, found "."'),
    ("1.2.3,1,1", 'arrived_at: expected a number of seconds >= 0, found "1.2.3"'),
    (",1,1", 'arrived_at: expected a number of seconds >= 0, found ""'),
    ("9000000000.000000001,1,1", 'arrived_at: expected at most 9e+09 s, found "9000000000.000000001"'),
    ("1e300,1,1", 'arrived_at: expected at most 9e+09 s, found "1e300"'),
    ("1,1", "expected 3 cells, as in the first line, found 2"),
    ("x,1,1,1", "expected 3 cells, as in the first line, found 4"),
    ('1,"1"2,1', "a cell in quotes does not end, or text follows it; inside, quotes are doubled"),
])
def test_a_bad_row_names_line_column_and_what_was_expected(row, message):
    assert fault(f"{HEADER}\n0,1,1\n{row}\n0,1,1\n") == f"traces/t.csv:3: {message}"


def test_a_quote_that_never_ends_is_a_fault_of_its_row():
    assert fault(f'{HEADER}\n0,1,1\n0,"1,1\n0,1,1\n') == (
        "traces/t.csv:3: a cell in quotes does not end, or text follows it; inside, quotes are doubled")


def test_lines_inside_quotes_are_counted():
    assert fault(f'{HEADER},tenant\n0,1,1,"a\nb"\n0,1,x,c\n') == (
        'traces/t.csv:4: num_decode_tokens: expected an integer >= 0, found "x"')


def test_every_fault_is_reported_up_to_twenty():
    rows = "1,0,1\n" * 25

    found = faults(f"{HEADER}\n{rows}")

    assert found[0].startswith("traces/t.csv:2: ")
    assert found[19].startswith("traces/t.csv:21: ")
    assert found[20:] == ["traces/t.csv: 5 more faults like these"]


def test_two_faults_of_a_row_are_two():
    assert [each.split(": ")[1] for each in faults(f"{HEADER}\n-1,0,x\n")] == [
        "arrived_at", "num_prefill_tokens", "num_decode_tokens"]


@pytest.mark.parametrize(("text", "expected"), [
    ("", ["traces/t.csv: the file is empty"]),
    ("\n\n", ["traces/t.csv: the file is empty"]),
    (HEADER, ["traces/t.csv: there are no rows below the first line"]),
    (f"{HEADER},tennant\n", ['traces/t.csv:1: unknown column "tennant"; did you mean tenant?']),
    (f"{HEADER},tenant,tenant\n", ['traces/t.csv:1: column "tenant" stands there 2 times']),
    ("arrived_at,num_prefill_tokens\n", [
        'traces/t.csv:1: column "num_decode_tokens" is missing; found "arrived_at, num_prefill_tokens"; [workload] '
        'columns = {num_decode_tokens = "..."} says what it is called here']),
    (HEADER.encode() + b"\n0,1,1\n0,\xff,1", ["traces/t.csv:3: not UTF-8 text (byte 0xff)"]),
    (HEADER.encode() + b"\n0,1,1\n0,\x00,1", ["traces/t.csv:3: not UTF-8 text (byte 0x00)"]),
])
def test_a_file_that_is_no_trace_is_refused(text, expected):
    assert faults(text) == expected


def test_integer_ids_stay_integers():
    assert read(f"{HEADER},request_id\n0,1,1,30\n0,1,1,-4").request_ids.tolist() == [30, -4]


def test_one_id_that_is_no_integer_makes_all_of_them_text():
    assert read(f"{HEADER},request_id\n0,1,1,30\n0,1,1,r7\n").request_ids == ["30", "r7"]


@pytest.mark.parametrize("ids", [("7", "8", "7"), ("a", "b", "a")])
def test_an_id_stands_once(ids):
    text = HEADER + ",request_id\n" + "".join(f"0,1,1,{each}\n" for each in ids)

    assert fault(text) == (
        f'traces/t.csv:4: request_id: expected an id that is not that of line 2, found "{ids[0]}"')


def test_an_id_is_not_empty():
    assert fault(f"{HEADER},request_id\n0,1,1,a\n0,1,1,\n") == 'traces/t.csv:3: request_id: expected text, found ""'


def test_labels_become_codes_and_names():
    columns = read(f'{HEADER},tenant,slo_class\n0,1,1,b,gold\n0,1,1,"a, ""x""",\n0,1,1,b,gold\n')

    assert columns.labels["tenant"][0].tolist() == [0, 1, 0]
    assert columns.labels["tenant"][1] == ["b", 'a, "x"']
    assert columns.labels["slo_class"][0].tolist() == [0, -1, 0]


def test_quotes_keep_the_ends_of_lines_as_they_are():
    assert read(f'{HEADER},tenant\r\n0,1,1,"a\r\nb\r"\r\n').labels["tenant"][1] == ["a\r\nb\r"]


def test_what_clients_declare_is_kept_and_may_be_left_out():
    columns = read(f"{HEADER},priority,max_tokens,deadline_s\n0,1,5,-2,9,0.5\n0,1,5,,,\n")

    assert columns.priority.tolist() == [-2, 0]
    assert columns.max_tokens.tolist() == [9, MISSING]
    assert columns.timeout_ns.tolist() == [500_000_000, MISSING]


def test_the_workload_is_sorted_by_arrival_and_ties_keep_file_order(tmp_path):
    built = build(tmp_path, f"{HEADER},tenant\n2,1,5,a\n1,2,6,b\n2,3,7,c\n1,4,8,d\n")

    # rows 1, 3 at 1 s, then rows 0, 2 at 2 s; ids are row numbers
    assert built.request_ids.tolist() == [1, 3, 0, 2]
    assert built.requests["prompt_tokens"].tolist() == [2, 4, 1, 3]
    assert built.outcomes["output_tokens"].tolist() == [6, 8, 5, 7]
    assert built.demands["tie_rank"].tolist() == [1, 3, 0, 2]
    assert [built.labels["tenant"][code] for code in built.demands["tenant"]] == ["b", "d", "a", "c"]


def test_text_ids_rank_as_text(tmp_path):
    built = build(tmp_path, f"{HEADER},request_id\n0,1,1,r2\n0,1,1,r10\n0,1,1,a\n")

    assert built.demands["tie_rank"].tolist() == [2, 1, 0]      # a < r10 < r2


def test_defaults_of_demands(tmp_path):
    built = build(tmp_path, f"{HEADER},deadline_s,max_tokens\n0,1,0,,\n2,1,7,0.5,3\n3,1,7,9e9,\n")

    assert built.demands["max_tokens"].tolist() == [1, 3, 7]    # at least 1; declared; the output length
    assert built.demands["deadline_ns"].tolist() == [-1, 2_500_000_000, 9_000_000_003 * 10**9]
    for field, value in (("enqueued_ns", -1), ("scheduled_ns", -1), ("first_token_ns", -1), ("completed_ns", -1),
                         ("replica", -1), ("output_tokens", 0), ("cached_tokens", 0), ("status", 0)):
        assert (built.requests[field] == value).all()
    for label in LABELS:
        assert (built.demands[label] == -1).all()


def test_a_deadline_beyond_the_clock_is_its_end(tmp_path):
    built = build(tmp_path, f"{HEADER},deadline_s\n0,1,1,1\n9e9,1,1,9e9\n")

    assert built.demands["deadline_ns"].tolist() == [10**9, 2**63 - 1]


def test_max_requests_takes_the_first_arrivals(tmp_path):
    built = build(tmp_path, f"{HEADER}\n3,1,1\n1,2,1\n2,3,1\n", max_requests=2)

    assert built.requests["prompt_tokens"].tolist() == [2, 3]
    assert built.request_ids.tolist() == [1, 2]


def test_gzip_is_recognised_by_its_content(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(f"{HEADER}\n0,5,6\n".encode()))

    assert build_workload(
        Trace(TraceParameters(path=str(path), parameters=None)).columns(None)).requests["prompt_tokens"].tolist() == [5]


@pytest.mark.parametrize(("content", "message"), [
    (None, "no such file"),
    (b"\x1f\x8b\x08broken", "damaged gzip data"),
    (gzip.compress(HEADER.encode(), mtime=0)[:-9], "damaged gzip data"),
])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, message):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputErrors, match=message):
        Trace(TraceParameters(path=str(path), parameters=None)).columns(None)


def test_a_folder_is_no_trace(tmp_path):
    with pytest.raises(InputErrors, match='a directory; format = "csv" reads one file'):
        Trace(TraceParameters(path=str(tmp_path), parameters=None)).columns(None)


def test_one_column_of_any_table_can_be_read():
    assert read_integer_column("f", b"a,b\nx,3\n,4\n", "b").tolist() == [3, 4]


# csv.writer leaves a carriage return unquoted, and then nobody can tell it from a line's end
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=6)
ROWS = st.lists(st.tuples(
    st.integers(0, MAX_TIME_NS), st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(-2**31, 2**31 - 1),
    st.one_of(st.none(), TEXTS)), min_size=1, max_size=20)


@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_what_is_written_is_read(rows, end, quoting):
    file = io.StringIO()
    writer = csv.writer(file, lineterminator=end, quoting=quoting)
    writer.writerow([*HEADER.split(","), "priority", "tenant"])
    writer.writerows((f"{ns // 10**9}.{ns % 10**9:09}", *rest) for ns, *rest in rows)

    columns = read(file.getvalue())

    codes, names = columns.labels["tenant"]
    tenants = [names[code] if code >= 0 else None for code in codes]
    found = zip(columns.arrival_ns.tolist(), columns.prompt_tokens.tolist(), columns.output_tokens.tolist(),
                columns.priority.tolist(), tenants, strict=True)
    assert list(found) == rows


def test_arrays_are_int64():
    columns = read(f"{HEADER}\n0,1,1\n")

    assert {columns.arrival_ns.dtype, columns.prompt_tokens.dtype, columns.output_tokens.dtype} == {np.dtype("i8")}


def test_blank_lines_between_rows_are_counted_and_not_read():
    columns = read(f"{HEADER}\n1,100,20\n\n\r\n2,50,10\n")
    assert columns.arrival_ns.tolist() == [1_000_000_000, 2_000_000_000]
    with pytest.raises(InputErrors, match=r":5: num_prefill_tokens: expected an integer >= 1, found \"x\"$"):
        read(f"{HEADER}\n1,100,20\n\n\n2,x,10\n")
