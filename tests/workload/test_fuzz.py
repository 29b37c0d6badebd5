"""Whatever a file holds, a reader returns requests or refuses it with a message."""
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.errors import InputErrors
from simulator.workload.build import build_workload
from simulator.workload.columns import in_arrival_order, reordered
from simulator.workload.formats.agentic_mooncake import AgenticMooncake
from simulator.workload.formats.aiperf_dag import AiperfDag
from simulator.workload.formats.applied_compute import AppliedCompute
from simulator.workload.formats.azure import Azure
from simulator.workload.formats.chats import Chats
from simulator.workload.formats.dynamo import Dynamo
from simulator.workload.formats.llmservingsim import LlmServingSim
from simulator.workload.formats.mooncake import Mooncake, MooncakeParameters
from simulator.workload.formats.mooncake_delta import MooncakeDelta
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.formats.observed import Observed, ObservedParameters
from simulator.workload.formats.tracelab import TraceLab
from simulator.workload.formats.tracev2 import COLUMNS as OF_BLIS
from simulator.workload.formats.tracev2 import TraceV2, TraceV2Parameters
from simulator.workload.formats.weka import Weka
from simulator.workload.lowering import script_of
from simulator.workload.scales import scale

SEEDS = {
    NativeCsv: b"arrived_at,num_prefill_tokens,num_decode_tokens,prompt,request_id,tenant,session,round,wait_for\r\n"
               b'0.5,40,0,:40,a,"x, ""y""",s,0,\n1e-3,60,7,a.own:40/a.out:10/sys:10,b,,s,1,a:end+0.5\n',
    Observed: b"request_id,planned_s,sent_s,ttft_s,e2el_s,input_tokens,output_tokens,status,session,prompt\n"
              b"a,0,0.5,0.1,0.5,40,5,ok,s,g:16/:24\nb,0,1,,,7,,timeout,,\nc,1,1.5,0.1,0.5,30,6,ok,,a.own:10/:20\n",
    Azure: b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
           b"2023-11-16 18:15:46.6805900,374,44\n2024-05-12 00:00:00+01:00,3,4\n",
    Mooncake: b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
              b'{"timestamp": 27.5, "input_length": 1, "output_length": 5}\n',
    MooncakeDelta: b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1], "session_id": "s"}\n'
                   b'{"delay": 2.5, "input_length": 1, "output_length": 5, "session_id": "s"}\n',
    AgenticMooncake: b'{"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local"}\n'
                     b'{"request_id": "a", "play_id": "p", "input_length": 4, "output_length": 5, "hash_ids": [0], '
                     b'"not_before_ms": 0}\n'
                     b'{"request_id": "b", "play_id": "p", "input_length": 5, "output_length": 5, "hash_ids": [0, 1], '
                     b'"not_before_ms": 9, "dependencies": [{"request_id": "a", "trigger": "dispatch", '
                     b'"delay_ms": 1.5, "relation": "spawn"}]}\n',
    AppliedCompute: b'{"num_turns": 1, "input_prompt_length": 100, "assistant_response_length": [10], '
                    b'"tool_call_output_length": [30], "tool_call_latency": [1.5], '
                    b'"final_assistant_response_length": 5}\n',
    Dynamo: b'{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 5, '
            b'"agent_context": {"session_id": "s"}, "request": {"request_id": "a", "output_tokens": 2, "replay": '
            b'{"trace_block_size": 4, "input_length": 5, "input_sequence_hashes": [7, 8]}}}\n'
            b'{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 50, '
            b'"agent_context": {"session_id": "t", "parent_session_id": "s"}, "request": {"request_id": "b", '
            b'"output_tokens": 2, "replay": {"trace_block_size": 4, "input_length": 5, '
            b'"input_sequence_hashes": [7]}}}\n',
    LlmServingSim: b'{"arrival_time_ns": 5, "input_toks": 2, "output_toks": 3, "input_tok_ids": [1, 2]}\n'
                   b'{"arrival_time_ns": 9, "session_id": "s", "sub_requests": [{"input_toks": 2, "output_toks": 3, '
                   b'"tool_duration_ns": 7}, {"input_toks": 2, "output_toks": 3}]}\n',
    AiperfDag: b'{"session_id": "p", "turns": [{"max_tokens": 3, "input_tokens": 5, "spawns": ["c"]}, '
               b'{"max_tokens": 3, "input_tokens": 9, "delay": 2}]}\n'
               b'{"session_id": "c", "turns": [{"max_tokens": 3, "input_tokens": 5}]}\n',
    TraceLab: b'{"session_id": "s", "input_tokens_total": 9, "prefix_tokens": 0, "newly_append_tokens": 9, '
              b'"output_tokens": 3, "timing_events": [{"timestamp": "2026-06-01T05:40:20.151Z"}]}\n'
              b'{"session_id": "s", "input_tokens_total": 9, "prefix_tokens": 6, "newly_append_tokens": 3, '
              b'"output_tokens": 3, "timing_events": [{"timestamp": "2026-06-01T05:40:21.151Z"}], "tools": []}\n',
    Chats: b'[{"id": "a", "conversations": [{"from": "human", "num_tokens": 5}, {"from": "gpt", "num_tokens": 2}]}]',
    Weka: b'{"id": "t", "block_size": 4, "hash_id_scope": "local", "requests": [{"t": 0, "type": "n", "model": "m", '
          b'"in": 9, "out": 2, "hash_ids": [1, 2], "api_time": 1.5}, {"t": 1, "type": "subagent", "agent_id": "a", '
          b'"duration_ms": 5, "status": "completed", "requests": [{"t": 0, "type": "s", "in": 4, "out": 1}]}, '
          b'{"t": 3, "type": "n", "model": "m", "in": 9, "out": 2, "hash_ids": [1, 3]}]}',
    TraceV2: ",".join(OF_BLIS).encode() + b"\n" + b"\n".join(
        b"%d,c,T,batch,S,%d,g,64,false,100,20,0,0,0,0,0,,%d,0,%d,%d,0,0,0,ok,," % (i, i, 9 * i, 40 + i, 40)
        for i in range(3)) + b"\n",
}
PARAMETERS = {Mooncake: MooncakeParameters(), Observed: ObservedParameters(),
              TraceV2: TraceV2Parameters(session_mode="closed_loop")}
PIECES = st.one_of(st.binary(max_size=4), st.sampled_from([
    b"", b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"\0", b"-", b"9" * 25, b"1e999", b"nan", b".", b":", b"/", b".own:",
    b".out:1", b"a", b"s", b"0", b"-1", b"\xff", b"\xef\xbb\xbf", b"{", b"[" * 5000, b"null", b"Z", b"+00:00"]))
EDITS = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 20), PIECES), min_size=1, max_size=6)


def check(reader, data):
    columns, faults = None, ()
    try:
        columns = reader.read("f", data)
    except InputErrors as errors:
        faults = errors.faults
    assert all(fault.startswith("f") and "\n" not in fault for fault in faults)
    assert (columns is None) == bool(faults)
    if columns is not None:
        check_columns(columns)


def check_columns(columns):
    if columns.waits is None:
        columns = in_arrival_order(columns)
    elif len(columns.waits.sources):
        assert (columns.waits.delays_ns >= 0).all()
        script_of(columns, Load(mode="lanes", lanes=2, snapshot="uniform"), None, RandomStreams(0))
    built = build_workload(reordered(scale(columns, 1.5, 0.5, 0.5), np.arange(len(columns))))
    assert len(built) == len(columns) > 0
    assert (built.requests["arrival_ns"] >= 0).all()
    assert (built.requests["prompt_tokens"] >= 1).all()
    for request, demand in zip(built.requests, built.demands, strict=True):
        segments = built.segments[demand["segments_begin"]:][:demand["num_segments"]]
        assert segments["num_tokens"].sum() in (0, request["prompt_tokens"])


def reader_of(kind):
    return kind(MooncakeParameters() if kind is MooncakeDelta else PARAMETERS.get(kind))


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
