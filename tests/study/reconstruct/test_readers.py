"""Files of requests, and their refusals."""
import json

import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.study.reconstruct import access_log, spans
from simulator.study.reconstruct.access_log import UNKNOWN
from support.metric_files import source


def test_access_log_keeps_demand_and_leaves_out_faults_of_clients(tmp_path):
    found = access_log.read(source(tmp_path, (
        "timestamp,prompt_tokens,completion_tokens,latency_ms,status\n"
        "2026-11-30T08:00:02Z,10,5,1000,200\n2026-11-30T08:00:01+00:00,20,3,100,503\n"
        "2026-11-30T08:00:03Z,30,,100,400\n")))

    assert np.diff(found.arrival_s).tolist() == [1.0]
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([20, 10], [UNKNOWN, 5])
    assert found.resolution_s == 1.0
    assert "1 requests with a status from 400 on" in found.notes[0]


def test_times_of_ends_are_moved_back_by_the_latency(tmp_path):
    text = "completed_at,isl,osl,latency\n1800000010.5,10,5,2.25\n1800000011.5,10,5,0.5\n"

    assert access_log.read(source(tmp_path, text), is_end=True).arrival_s.tolist() == [1800000008.25, 1800000011.0]


@pytest.mark.parametrize(("text", "message"), [
    ("time,prompt_tokens\n1,2\n", 'column "num_decode_tokens" is missing'),
    ("time,isl,osl\nx,2,3\n", "time: expected seconds, an epoch time or an ISO date"),
    ("time,isl,osl\n1,-2,3\n", "expected a number of tokens"),
    ("time,ts,isl,osl\n1,1,2,3\n", "time, ts may each be arrived_at"),
    ("time,isl,osl,status\n1,2,3,404\n", "no request in it")])
def test_faults_of_logs_are_named(tmp_path, text, message):
    with pytest.raises(InputErrors, match=message):
        access_log.read(source(tmp_path, text))


def test_spans_of_both_layouts_are_read(tmp_path):
    listed = {"resourceSpans": [{"scopeSpans": [{"spans": [{
        "name": "llm_request", "startTimeUnixNano": "1800000000500000000", "attributes": [
            {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "12"}},
            {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "7"}}]}, {
                "name": "other", "startTimeUnixNano": "1", "attributes": []}]}]}]}
    flat = {"name": "llm_request", "start_time": "2027-01-15T08:00:01Z",
            "attributes": {"gen_ai.usage.prompt_tokens": 12}}

    one = spans.read(source(tmp_path, listed))
    two = spans.read(source(tmp_path, "\n".join(map(json.dumps, (flat, listed)))))

    assert (one.arrival_s.tolist(), one.output_tokens.tolist()) == ([1800000000.5], [7])
    assert (two.arrival_s.tolist(), two.output_tokens.tolist()) == ([1800000000.5, 1800000001.0], [7, UNKNOWN])
    with pytest.raises(InputErrors, match="no span"):
        spans.read(source(tmp_path, {"spans": [{"name": "gen_ai.usage.", "attributes": {}}]}))
