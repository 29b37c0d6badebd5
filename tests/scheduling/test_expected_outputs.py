"""Who is expected to be done soonest goes first, or to where least is expected; numbers worked out by hand."""
import pytest

import simulator
from support.every_key import read

MS = 1_000_000
# Outputs of 6, 2, 4 and 1 tokens; the first is alone when it comes.
TRACE = ("arrived_at,num_prefill_tokens,num_decode_tokens,predicted_tokens\n"
         "0,3,6,6\n0.0001,3,2,2\n0.0001,3,4,1\n0.0001,3,1,\n")
PYTHON = """
from simulator.scheduling.python_scheduler import PythonScheduler


class LeastLeft(PythonScheduler):
    def form_batch(self, batch, now_ns):
        waiting = sorted(batch.waiting, key=lambda request: request.expected_tokens % 2**31)
        for request in batch.running or waiting[:1]:
            batch.run(request) if request.is_running else batch.admit(request)
"""


@pytest.fixture
def completed_ms(tmp_path, monkeypatch):
    """Serve the requests one by one, in iterations of 1 ms; return when each completes."""
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "least_left_lab.py").write_text(PYTHON)
    monkeypatch.syspath_prepend(tmp_path)

    def completed_ms(predictor, replicas=1, routing=None, **engine):
        result = simulator.run(read({
            "topology": {"replicas": replicas}, "cluster": {"routing": routing or {}},
            "engine": {"num_gpu_blocks": 100, "max_model_len": 100, "max_num_seqs": 1} | engine,
            "latency": {"backend": "linear", "base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                        "per_context_token_us": 0.0},
            "workload": {"type": "trace", "path": str(tmp_path / "trace.csv"),
                         "output_knowledge": {"predictor": predictor}}}))
        assert not result.summary["diagnosis"]
        return (result.requests["completed_ns"] / MS).tolist()
    return completed_ms


SHORTEST = {"scheduler": "blis", "policy": "shortest-output"}


@pytest.mark.parametrize("engine", [SHORTEST, {"scheduler": "least_left_lab:LeastLeft"}], ids=["blis", "python"])
@pytest.mark.parametrize(("predictor", "expected"), [
    ("exact", [6, 9, 13, 7]),           # 1, 2, 4 tokens after the first
    ("column", [6, 12, 10, 13])])       # the third is taken for the shortest; of the last nothing is known
def test_the_shortest_output_goes_first(completed_ms, engine, predictor, expected):
    assert completed_ms(predictor, **engine) == expected


def test_without_predictions_they_go_as_they_came(completed_ms):
    assert completed_ms("none", scheduler="blis") == [6, 8, 12, 13]


def test_requests_go_where_least_is_expected(completed_ms):
    # r0 loads one replica with 3 + 6, so the others go to the other one until that expects more: 3 + 2, then 3 + 4
    # more make 12; the last goes to the first again
    routing = {"policy": "least_loaded", "metric": "expected_tokens"}

    assert completed_ms("exact", replicas=2, routing=routing, scheduler="blis") == [6, 2.1, 6.1, 7]
