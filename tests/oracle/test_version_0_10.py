"""Where vLLM 0.10 differs from 0.32: examples worked by hand, for engine and twin.

Source: ../shared/specs/vllm.md, D.12.
"""
from oracle.twin import simulate
from support import engine
from support.scenario import load


def both(options, requests):
    """Yield ("0.10" or "0.32", who, [{id: tokens} per decision that scheduled something, in scheduled order])."""
    for version in ("0.10", "0.32"):
        description = {"options": options | {"vllm_version": version}, "requests": requests,
                       "prices": {"base_us": 5000.0, "per_prefill_token_us": 0.0}, "spec_accept": [0]}
        for who in ("engine", "twin"):
            scenario = load(description)
            recording = (engine.run(scenario) if who == "engine" else
                         simulate(scenario.workload, scenario.parameters, scenario.prices, **scenario.cache))
            yield version, who, recording, [{scenario.ids[row]: tokens for row, tokens in step["scheduled"]}
                                            for step in recording.steps if step["scheduled"]]


def request(request_id, prompt, outputs=1, arrival=0.0, **more):
    return {"id": request_id, "arrival": arrival, "output_len": outputs, "prompt": [["uniq", prompt]], **more}


def test_every_victim_before_the_current_request_costs_another_its_turn():
    # 6 usable blocks of 4: a, b, d, e hold one each and c two, when c wants two more. a and b go, worst by priority.
    # 0.10 does not move its index back by two, so the two requests behind c are passed over; 0.32 serves them.
    options = {"num_blocks": 7, "block_size": 4, "policy": "priority", "scheduler_reserve_full_isl": False,
               "enable_prefix_caching": False, "max_num_batched_tokens": 40, "long_prefill_token_threshold": 8}
    requests = [request("a", 1, 9, priority=2), request("b", 1, 9, priority=2), request("c", 16, 9, 0.001, priority=0),
                request("d", 2, 9, 0.001, priority=0), request("e", 2, 9, 0.001, priority=0)]
    for version, who, recording, batches in both(options, requests):
        assert batches[1] == {"a": 1, "b": 1, "c": 8, "d": 2, "e": 2}, who
        assert recording.steps[2]["preempted"] == [0, 1], who
        assert batches[2] == ({"c": 8} if version == "0.10" else {"c": 8, "d": 1, "e": 1}), who


def test_a_prompt_is_admitted_by_its_first_chunk():
    # a holds 4 of 8 blocks; b needs 6 for all of its prompt, 4 for a chunk of 16 tokens.
    options = {"num_blocks": 9, "block_size": 4, "enable_prefix_caching": False, "max_num_batched_tokens": 16,
               "scheduler_reserve_full_isl": None}
    requests = [request("a", 15, 5), request("b", 24, arrival=0.001)]
    for version, who, _, batches in both(options, requests):
        assert batches[1] == ({"a": 1, "b": 15} if version == "0.10" else {"a": 1}), who


def test_the_chunk_limit_holds_for_a_lone_request():
    options = {"long_prefill_token_threshold": 8, "max_num_batched_tokens": 64}
    for version, who, _, batches in both(options, [request("a", 20)]):
        assert [batch["a"] for batch in batches] == ([8, 8, 4] if version == "0.10" else [20]), who


def test_what_does_not_fit_the_budget_whole_is_overtaken():
    options = {"enable_chunked_prefill": False, "max_num_batched_tokens": 30}
    requests = [request("a", 20), request("b", 25), request("c", 5)]
    for version, who, _, batches in both(options, requests):
        assert batches[0] == ({"a": 20, "c": 5} if version == "0.10" else {"a": 20}), who


def test_blocks_without_a_hash_are_freed_to_the_tail():
    # a has blocks 1 (full, hashed) and 2 (part of one). 0.10 appends both, tail first; 0.32 puts block 2 in front.
    options = {"num_blocks": 6, "block_size": 4}
    for version, who, recording, _ in both(options, [request("a", 6)]):
        assert recording.steps[0]["free_queue_end"] == ([3, 4, 5, 2, 1] if version == "0.10" else [2, 3, 4, 5, 1]), who


def test_no_lookahead_slots_at_admission():
    # 4 tokens fill a block; 2 lookahead slots take a second one.
    options = {"num_blocks": 6, "block_size": 4, "num_speculative_tokens": 2, "spec_lookahead": 2}
    for version, who, recording, _ in both(options, [request("a", 4)]):
        assert recording.steps[0]["free_blocks"] == (4 if version == "0.10" else 3), who


def test_an_admission_of_one_token_is_not_padded():
    options = {"num_speculative_tokens": 2}
    requests = [request("a", 5, 9), request("b", 1, arrival=0.001)]
    for version, who, _, batches in both(options, requests):
        assert batches[1] == ({"a": 3, "b": 1} if version == "0.10" else {"a": 3, "b": 3}), who


def test_async_schedules_one_step_too_many():
    # Prefill and one decode bring both tokens; 0.10 notices only when a third step is on its way.
    for version, who, _, batches in both({"async_scheduling": True}, [request("a", 5, 2)]):
        assert [batch["a"] for batch in batches] == ([5, 1, 1] if version == "0.10" else [5, 1]), who
