"""LLMServingSim's traces; iterations of 1 ms."""
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.llmservingsim import LlmServingSim
from support.traces import json_lines, play, shared


def read(*lines):
    return LlmServingSim().read("l.jsonl", json_lines(*lines).encode())


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        read(*lines)
    [only] = caught.value.faults
    return only


def flat(at_ns=0, prompt=2, output=1, **others):
    return {"arrival_time_ns": at_ns, "input_toks": prompt, "output_toks": output} | others


def test_s5_flat_requests_share_what_their_ids_share(tmp_path):
    played = play(tmp_path, shared("llmservingsim/example_trace.jsonl"), "llmservingsim", engine={"block_size": 1},
                  time_origin="trace")

    assert [played.ms(name)[0] for name in "012"] == [46.926808, 347.938952, 479.613521]
    assert [(played.of(name, "prompt_tokens"), played.of(name, "output_tokens")) for name in "012"] == [
        (10, 70), (22, 104), (16, 69)]
    assert [played.of(name, "cached_tokens") for name in "012"] == [0, 7, 5]


def test_a_session_waits_for_its_tools(tmp_path):
    (tmp_path / "l.jsonl").write_text(json_lines(
        {"session_id": "s", "arrival_time_ns": 5_000_000, "sub_requests": [
            {"input_toks": 4, "output_toks": 3, "tool_duration_ns": 2_500_000, "input_tok_ids": [1, 2, 3, 4]},
            {"input_toks": 6, "output_toks": 1, "tool_duration_ns": 9, "input_tok_ids": [1, 2, 3, 9, 9, 9]}]},
        flat(6_000_000)))
    played = play(tmp_path, tmp_path / "l.jsonl", "llmservingsim", engine={"block_size": 1})

    assert played.all_ms() == [(0, 3), (5.5, 6.5), (1, 2)]      # since the first arrival
    assert played.of("1", "cached_tokens") == 3


def test_without_ids_prompts_are_their_own():
    assert not read(flat(), flat()).prompts.num_segments.any()


@pytest.mark.parametrize(("bad", "message"), [
    ({"arrival_time_ns": 0, "sub_requests": []}, "sub_requests: a session needs one request at least, found none"),
    (flat(input_tok_ids=[1]), "input_tok_ids: expected 2 ids (input_toks), found 1"),
    ({"arrival_time_ns": 0, "input_toks": 5}, "expected a JSON object with arrival_time_ns, and input_toks and "
                                              "output_toks or sub_requests: Object missing required field "
                                              "`output_toks`"),
    (flat(-1), "arrival_time_ns: expected an integer >= 0, found -1"),
])
def test_a_line_that_cannot_be_is_named(bad, message):
    assert fault(flat(), bad) == f"l.jsonl:2: {message}"
