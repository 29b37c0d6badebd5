"""Spans of requests: vLLM's names and times, which the reader of `reconstruct` takes."""
import json

import numpy as np
import pytest

from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.reconstruct import spans
from support.live_sessions import EXPERIMENT
from support.live_site import CHAT, COMPLETIONS, HELLO, TALK, Site, post

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def attributes(span):
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return the session's requests, and the file of its spans."""
    folder = tmp_path_factory.mktemp("spans")

    async def scenario(client, admin):
        for flags in ("00", "01"):
            await client.post(COMPLETIONS, json=HELLO | {"request_id": f"traced-{flags}"},
                              headers={"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
        await client.post(COMPLETIONS, json=HELLO | {"request_id": "own"}, headers={"traceparent": "00-0-0-01"})
        await post(client, COMPLETIONS, HELLO | {"prompt": ["one", "two"], "n": 2, "temperature": 0, "top_p": 0.5,
                                                 "request_id": "several"})
        await post(client, CHAT, TALK | {"request_id": "talk"})

    site = Site(folder, overrides=["serve.spans=true"])
    site.talk(scenario)
    site.session.write(folder / "out", False)
    return site.requests, folder / "out/spans.jsonl"


def test_a_request_has_the_span_of_vllm(served):
    requests, file = served
    [export] = map(json.loads, file.read_text().splitlines())
    [resource] = export["resourceSpans"]
    found = {attributes(span)["gen_ai.request.id"]: span for span in resource["scopeSpans"][0]["spans"]}
    assert found.keys() == {"cmpl-traced-01-0", "cmpl-own-0", "chatcmpl-talk",
                            *(f"{i}_cmpl-several-{prompt}" for i in range(2) for prompt in range(2))}
    span, own, several = found["cmpl-traced-01-0"], found["cmpl-own-0"], attributes(found["1_cmpl-several-1"])
    assert (span["name"], span["traceId"], span["parentSpanId"]) == ("llm_request", TRACE, PARENT)
    assert own["traceId"] != TRACE and "parentSpanId" not in own
    assert len({each["spanId"] for each in found.values()}) == len(found)
    assert [several.get(f"gen_ai.request.{name}") for name in ("n", "max_tokens", "top_p", "temperature")] == [
        "2", "6", 0.5, None]                # a temperature of 0 is left out
    row = requests[1]
    facts = {name.removeprefix("gen_ai.latency."): value for name, value in attributes(span).items()}
    took_ns = {"time_to_first_token": row["first_token_ns"] - row["arrival_ns"],
               "e2e": row["completed_ns"] - row["arrival_ns"],
               "time_in_queue": row["scheduled_ns"] - row["enqueued_ns"],
               "time_in_model_prefill": row["first_token_ns"] - row["scheduled_ns"],
               "time_in_model_decode": row["completed_ns"] - row["first_token_ns"],
               "time_in_model_inference": row["completed_ns"] - row["scheduled_ns"]}
    assert {name: facts[name] for name in took_ns} == {name: took / 1e9 for name, took in took_ns.items()}
    assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) == took_ns["e2e"]


def test_the_reader_of_reconstruct_finds_the_requests(served):
    requests, file = served
    source = Source(str(file))
    assert spans.recognises(source)
    read, asked = spans.read(source), requests[1:8]
    np.testing.assert_array_equal(np.sort(read.prompt_tokens), np.sort(asked["prompt_tokens"]))
    np.testing.assert_array_equal(np.sort(read.output_tokens), np.sort(asked["output_tokens"]))


def test_spans_with_faults(tmp_path):
    with pytest.raises(InputErrors, match=r"serve\.spans: expected false with like"):
        Site(tmp_path, overrides=["serve.spans=true", 'serve.like="sglang"'])
    (tmp_path / "served.toml").write_text(EXPERIMENT)
    with pytest.raises(InputErrors, match="spans = true takes metrics_clock"):
        load_experiment(tmp_path / "served.toml", ["serve.spans=true", 'serve.metrics_clock="wall"'])
