"""Whatever a file holds, it is imported or refused with a message."""
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.study.measured.formats import read
from simulator.study.measured.source import Source
from simulator.study.measured.write import REQUEST_COLUMNS, STEP_COLUMNS, csv_text
from study.measured.test_formats import REQUESTS, STEPS, TRACEV2, aiperf, guide, lifecycle, tracev2, vllm

SEEDS = {
    "vllm": json.dumps(vllm()),
    "guidellm": json.dumps({"benchmarks": [{"requests": {"successful": [guide(1.0)], "errored": [guide(2.0, "e")]}}]}),
    "aiperf": f"{aiperf(10**9)}\n{aiperf(2 * 10**9, {}, {'code': 500, 'type': 'E', 'message': 'boom'})}\n",
    "inference_perf": json.dumps([lifecycle(1.0), lifecycle(2.0, None, {"error_type": "t", "error_msg": "m"})]),
    "llmservingsim": json.dumps({"request_id": "a", "input_toks": 5, "output_toks": 3, "arrival_time": 9.0,
                                 "queued_ts": 1.0, "first_token_ts": 2.0, "last_token_ts": 3.0}),
    "tracev2": f"{TRACEV2}\n{tracev2(0, 'g', (10**6, 1500000, 1750000, 2500000))}\n",
    "requests": REQUESTS,
    "steps": f"{STEPS}\n1,1000.8,0,1,1,24,0,40,1,0,1000.95\n",
    "printed": "Iteration(0): 1 context requests, 34 context tokens, 2 generation requests, 2 generation tokens, "
               "iteration elapsed time: 34.03 ms\n",
    "observed": "request_id,sent_s,ttft_s,e2el_s,input_tokens,output_tokens,status\na,0.5,0.1,0.5,40,5,ok\n",
    "ours": "start_s,duration_s,num_sequences\n0.5,0.1,3\n",
}
PIECES = st.sampled_from([
    "", '"', '""', ",", "\n", "\r", "\0", "-", "9" * 25, "1e999", "nan", ".", ":", "/", "0", "-1", "{", "[" * 5000,
    "null", "true", "[]", "{}", "é"])
EDITS = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 20), PIECES), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", SEEDS)
@given(edits=EDITS)
@example(edits=[(0, 0, "")])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_imported_or_refused(kind, edits, tmp_path):
    text = SEEDS[kind]
    for at, length, piece in edits:
        text = text[:at] + piece + text[at + length:]
    path = tmp_path / "f.csv"
    path.write_bytes(text.encode())
    try:
        source = Source(str(path))
        found, faults = read(source), ()
    except InputErrors as errors:
        found, faults = [], errors.faults
    assert bool(found) != bool(faults)
    assert all(fault.startswith(str(path)) and "\n" not in fault for fault in faults)
    for each in found:
        assert each.requests or each.steps
        for columns, rows in ((REQUEST_COLUMNS, each.requests), (STEP_COLUMNS, each.steps)):
            assert all(row.keys() <= set(columns) for row in rows)
            assert csv_text(columns, rows).count("\n") >= len(rows)
