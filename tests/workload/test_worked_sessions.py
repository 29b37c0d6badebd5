"""The worked examples S1 to S4 of sessions and E8 of ramps; every iteration lasts 1 ms."""
import pytest

import simulator
from simulator.domain import records
from workload.test_loads import EXPERIMENT, ms

HEADER = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round,think_time_s,prompt\n"
S = ("S0,{at},100,3,S,0,,:100\n"
     "S1,,153,2,S,1,0.005,S0.own:100/S0.out:3/:50\n")
T = "T0,{at},80,1,T,0,,:80\n"


@pytest.fixture
def run(tmp_path):
    def run(rows, load="", **overrides):
        (tmp_path / "trace.csv").write_text(HEADER + rows.replace("S1,,", "S1,0,"))
        (tmp_path / "experiment.toml").write_text(
            f'{EXPERIMENT}[workload]\ntype = "trace"\npath = "trace.csv"\n[workload.load]\n{load}\n')
        result = simulator.run(tmp_path / "experiment.toml", overrides)
        return {row["request_id"]: row for row in result.requests}
    return run


def spans(rows):
    return {name: (row["arrival_ns"] / 1e6, row["completed_ns"] / 1e6) for name, row in rows.items()}


def test_s1_a_session_holds_its_slot(run):
    rows = run(S.format(at=0) + T.format(at=0), 'mode = "concurrency"\nconcurrency = 1\nunit = "session"')

    assert spans(rows) == {"S0": (0, 3), "S1": (8, 10), "T0": (10, 11)}
    assert rows["S1"]["prompt_tokens"] == 153


def test_s2_or_each_request_does(run):
    rows = run(S.format(at=0) + T.format(at=0), 'mode = "concurrency"\nconcurrency = 1')

    assert spans(rows) == {"S0": (0, 3), "T0": (3, 4), "S1": (8, 10)}
    assert rows["S1"]["cached_tokens"] == 96


def test_s3_two_open_loop_sessions(run):
    talk = "T0,0.0004,80,1,T,0,,:80\nT1,0,121,1,T,1,0,T0.own:80/T0.out:1/:40\n"

    assert spans(run(S.format(at=0) + talk)) == {"S0": (0, 3), "S1": (8, 10), "T0": (0.4, 2), "T1": (2, 3)}


def test_s4_a_rejected_turn_ends_its_session(run):
    # No text may be as long as the first turn: the engine refuses it.
    rows = run(S.format(at=0) + T.format(at=0), 'mode = "concurrency"\nconcurrency = 1\nunit = "session"',
               **{"engine.max_model_len": 90})

    assert (rows["S0"]["status"], rows["S1"]["status"]) == (records.REJECTED, records.NOT_SENT)
    assert spans(rows)["T0"] == (0, 1)


def test_e8_a_constant_rate_after_a_ramp(tmp_path):
    # GuideLLM's request i of a rate of 10/s after 4 s: sqrt(2 i R / rate) up to the 20th, then every 0.1 s.
    (tmp_path / "experiment.toml").write_text(EXPERIMENT + """[workload]
type = "synthetic"
num_requests = 25
arrival = {process = "constant"}
rate = {kind = "piecewise", times_s = [0.0, 4.0], rates_per_s = [0.0, 10.0], interpolate = "linear"}
prompt_tokens = {distribution = "constant", tokens = 1}
output_tokens = {distribution = "constant", tokens = 1}
""")
    arrivals = ms(simulator.run(tmp_path / "experiment.toml"), "arrival_ns")

    assert [arrivals[i - 1] for i in (5, 20, 25)] == pytest.approx([2000.0, 4000.0, 4500.0], abs=1e-6)
