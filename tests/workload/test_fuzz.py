"""Whatever a file holds, a reader returns requests or refuses it with a message."""
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.workload.build import build_workload
from simulator.workload.columns import in_arrival_order
from simulator.workload.formats.azure import Azure
from simulator.workload.formats.mooncake import Mooncake, MooncakeParameters
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.formats.tracev2 import COLUMNS as OF_BLIS
from simulator.workload.formats.tracev2 import TraceV2, TraceV2Parameters
from simulator.workload.scales import scale

SEEDS = {
    NativeCsv: b"arrived_at,num_prefill_tokens,num_decode_tokens,prompt,request_id,tenant,round\r\n"
               b'0.5,40,0,:40,a,"x, ""y""",0\n1e-3,60,7,a.own:40/a.out:10/sys:10,b,,0\n',
    Azure: b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
           b"2023-11-16 18:15:46.6805900,374,44\n2024-05-12 00:00:00+01:00,3,4\n",
    Mooncake: b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
              b'{"timestamp": 27.5, "input_length": 1, "output_length": 5}\n',
    TraceV2: ",".join(OF_BLIS).encode() + b"\n" + b"\n".join(
        b"%d,c,T,batch,S,%d,g,64,false,100,20,0,0,0,0,0,,%d,0,%d,%d,0,0,0,ok,," % (i, i, 9 * i, 40 + i, 40)
        for i in range(3)) + b"\n",
}
PARAMETERS = {Mooncake: MooncakeParameters(), TraceV2: TraceV2Parameters(sessions="closed_loop")}
PIECES = st.one_of(st.binary(max_size=4), st.sampled_from([
    b"", b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"\0", b"-", b"9" * 25, b"1e999", b"nan", b".", b":", b"/", b".own:",
    b".out:1", b"\xff", b"\xef\xbb\xbf", b"{", b"[" * 5000, b"null", b"Z", b"+00:00"]))
EDITS = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 20), PIECES), min_size=1, max_size=6)


def check(reader, data):
    columns, faults = None, ()
    try:
        columns = reader.read("f", data)
    except InputErrors as errors:
        faults = errors.faults
    assert all(fault.startswith("f:") and "\n" not in fault for fault in faults)
    assert (columns is None) == bool(faults)
    if columns is not None:
        check_columns(columns)


def check_columns(columns):
    built = build_workload(scale(in_arrival_order(columns), 1.5, 0.5, 0.5))
    assert len(built) == len(columns) > 0
    assert (built.requests["arrival_ns"] >= 0).all()
    assert (built.requests["prompt_tokens"] >= 1).all()
    for request, demand in zip(built.requests, built.demands, strict=True):
        segments = built.segments[demand["segments_begin"]:][:demand["num_segments"]]
        assert segments["num_tokens"].sum() in (0, request["prompt_tokens"])


def reader_of(kind):
    return kind(PARAMETERS.get(kind))


@pytest.mark.parametrize("kind", SEEDS)
@given(edits=EDITS)
@example(edits=[(0, 0, b"")])
def test_damaged_files_are_read_or_refused(kind, edits):
    data = SEEDS[kind]
    for at, length, piece in edits:
        data = data[:at] + piece + data[at + length:]

    check(reader_of(kind), data)


@pytest.mark.parametrize("kind", SEEDS)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(kind, data):
    check(reader_of(kind), data)
