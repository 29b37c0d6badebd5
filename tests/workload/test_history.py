"""What the prompt of a later turn is made of, and what the KV of the turn before is worth to it."""
import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.records import named_stream, output_stream, own_stream
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.workload.history import Turn, next_prompt
from support.engine import record
from support.workloads import plain_workload

ONE_MS = LinearParameters(base_us=1000, per_sequence_us=0, per_prefill_token_us=0, per_context_token_us=0)
FIRST = Turn(0, [(own_stream(0), 100)], 20, 6)
ANSWER = named_stream(0)


def hit_tokens(prompts, outputs):
    """Serve prompts a second apart; return what each finds in the prefix cache, in blocks of 16."""
    workload = plain_workload(np.arange(len(prompts)) * 10**9, [sum(n for _, n in each) for each in prompts], outputs)
    counts = [len(each) for each in prompts]
    workload.demands["num_segments"], workload.demands["segments_begin"] = counts, np.cumsum([0, *counts])[:-1]
    segments = np.array([piece for each in prompts for piece in each], records.SEGMENT)
    served = record(replace(workload, segments=segments, prompts_use_outputs=True), VllmParameters(), Linear(ONE_MS),
                    details=False, num_gpu_blocks=101, block_size=16, max_model_len=10_000)
    return served.requests["cached_tokens"].tolist()


@pytest.mark.parametrize(("keeps", "tokens", "found"), [
    (False, 134, 96),               # 100 + 14 + 20; the hit ends at the prompt's end: 100 // 16 * 16
    (True, 140, 112)])              # 100 + 20 + 20; KV of 100 + 20 - 1 tokens: 119 // 16 * 16
def test_n1_without_its_reasoning_an_output_is_another_text(keeps, tokens, found):
    prompt = next_prompt(FIRST, 1, 20, ANSWER, keeps)

    assert sum(n for _, n in prompt) == tokens
    assert hit_tokens([FIRST.prompt, prompt], [20, 1]) == [0, found]


def test_later_turns_share_the_answer():
    second = Turn(1, next_prompt(FIRST, 1, 20, ANSWER, False), 10)
    third = next_prompt(second, 2, 5, named_stream(1), False)

    # the third is 134 + 10 + 5, of which the second turn computed 134 + 10 - 1: 143 // 16 * 16
    assert third == [
        (own_stream(0), 100), (ANSWER, 14), (own_stream(1), 20), (output_stream(1), 10), (own_stream(2), 5)]
    assert hit_tokens([FIRST.prompt, second.prompt, third], [20, 10, 1]) == [0, 96, 128]


def test_what_is_empty_is_no_part_of_a_prompt():
    assert next_prompt(Turn(0, [(own_stream(0), 3)], 6, 6), 1, 0, ANSWER, False) == [(own_stream(0), 3)]
