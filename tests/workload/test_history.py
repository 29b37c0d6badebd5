"""What the prompt of a later turn is made of, and what the KV of the turn before is worth to it."""
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.records import named_stream, output_stream, own_stream
from simulator.errors import InputErrors
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.workload.history import Turn, next_prompt
from support.engine import record
from support.traces import play
from support.workloads import plain_workload

ONE_MS = LinearParameters(base_us=1000, per_sequence_us=0, per_prefill_token_us=0, per_context_token_us=0)
FIRST = Turn(0, [(own_stream(0), 100)], 20, 6)
ANSWER = named_stream(0)
NEW = [(own_stream(1), 20)]
HEADER = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round,max_tokens,reasoning_tokens"


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
    prompt = next_prompt(FIRST, NEW, ANSWER, keeps)

    assert sum(n for _, n in prompt) == tokens
    assert hit_tokens([FIRST.prompt, prompt], [20, 1]) == [0, found]


def test_later_turns_share_the_answer():
    second = Turn(1, next_prompt(FIRST, NEW, ANSWER, False), 10)
    third = next_prompt(second, [(own_stream(2), 5)], named_stream(1), False)

    # the third is 134 + 10 + 5, of which the second turn computed 134 + 10 - 1: 143 // 16 * 16
    assert third == [
        (own_stream(0), 100), (ANSWER, 14), (own_stream(1), 20), (output_stream(1), 10), (own_stream(2), 5)]
    assert hit_tokens([FIRST.prompt, second.prompt, third], [20, 10, 1]) == [0, 96, 128]


def test_what_is_empty_is_no_part_of_a_prompt():
    assert next_prompt(Turn(0, [(own_stream(0), 3)], 6, 6), [(own_stream(1), 0)], ANSWER, False) == [(own_stream(0), 3)]


def talk(tmp_path, *rows, header=HEADER, engine=None, **sessions):
    """Play a trace whose rows tell what each turn adds; return it."""
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    return play(tmp_path, tmp_path / "t.csv", sessions={"accumulate": True, **sessions}, engine=engine)


@pytest.mark.parametrize(("keys", "tokens", "found"), [
    ({}, 134, 96), ({"history_keeps_reasoning": False}, 134, 96), ({"history_keeps_reasoning": True}, 140, 112)])
def test_n1_in_a_trace_of_turns(tmp_path, keys, tokens, found):
    talked = talk(tmp_path, "a,0,100,20,s,0,,6", "b,0,20,1,s,1,,0", **keys)

    assert (talked.of("b", "prompt_tokens"), talked.of("b", "cached_tokens")) == (tokens, found)


@pytest.mark.parametrize(("output", "limit", "history", "tokens", "found"), [
    (20, 50, "actual", 140, 112), (20, 50, "declared", 170, 112),       # it ended by itself: KV of 119 tokens
    (20, 5, "actual", 125, 96), (20, 5, "declared", 125, 96),           # it was cut: KV of 104 tokens
    (20, "", "declared", 140, 112)])                                    # nothing is declared: as long as it is
def test_an_earlier_output_is_as_long_as_it_was_or_as_declared(tmp_path, output, limit, history, tokens, found):
    talked = talk(tmp_path, f"a,0,100,{output},s,0,{limit},", "b,0,20,1,s,1,,", history=history)

    assert (talked.of("b", "prompt_tokens"), talked.of("b", "cached_tokens")) == (tokens, found)


def test_what_was_declared_is_a_text_that_later_turns_share(tmp_path):
    talked = talk(tmp_path, "a,0,100,20,s,0,50,", "b,0,20,1,s,1,,", "c,0,9,1,s,2,,", history="declared")

    assert talked.of("c", "prompt_tokens") == 180
    assert talked.of("c", "cached_tokens") == 160           # all of b's 170 tokens, in blocks of 16


def test_an_output_that_ends_at_max_model_len_is_as_long_as_that_left_it(tmp_path):
    talked = talk(tmp_path, "a,0,100,60,s,0,,", "b,0,20,1,s,1,,", engine={"max_model_len": 130})

    assert talked.of("a", "output_tokens") == 30
    assert (talked.of("b", "prompt_tokens"), talked.status("b")) == (150, "rejected")


def test_rows_may_stand_in_any_order_and_have_prompts_of_pieces(tmp_path):
    header = "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round,prompt"
    talked = talk(tmp_path, "b,0,20,3,s,1,", "a,0,64,4,s,0,system:48/:16", "x,9,64,1,t,0,system:48/:16", "c,0,5,1,s,2,",
                  header=header)

    assert [talked.of(name, "prompt_tokens") for name in "abcx"] == [64, 88, 96, 64]
    assert [talked.of(name, "cached_tokens") for name in "abcx"] == [0, 64, 80, 48]


@pytest.mark.parametrize("seed", range(12))
def test_prompts_hold_what_the_engine_generated(tmp_path, seed):
    rng, rows = Random(seed), []
    for session in "pqrs":
        for turn in range(rng.randint(1, 6)):
            output = rng.choice([0, 1, 9, 30])
            rows.append(f"{session}{turn},{rng.random():.3f},{rng.choice([1, 16, 40])},{output},{session},{turn},"
                        f"{rng.choice(['', 1, 8, 64])},{rng.choice(['', 0, output // 2, output])}")
    rng.shuffle(rows)
    new = {row.split(",")[0]: int(row.split(",")[2]) for row in rows}
    thought = {row.split(",")[0]: int(row.split(",")[7] or 0) for row in rows}
    keeps = rng.random() < 0.5
    talked = talk(tmp_path, *rows, history_keeps_reasoning=keeps, engine={"max_model_len": rng.choice([90, 5000])})

    for name in talked.names():
        before = f"{name[0]}{int(name[1:]) - 1}"
        if before not in new or talked.status(name) == "not_sent":
            continue
        answer = talked.of(before, "output_tokens")
        kept = answer if keeps else max(answer - thought[before], 0)
        assert talked.of(name, "prompt_tokens") == talked.of(before, "prompt_tokens") + kept + new[name]


def test_scaled_outputs_stand_in_prompts_as_they_are(tmp_path):
    (tmp_path / "t.csv").write_text(f"{HEADER}\na,0,100,20,s,0,,6\nb,0,20,1,s,1,,\n")
    talked = play(tmp_path, tmp_path / "t.csv", sessions={"accumulate": True}, decode_scale=0.5)

    assert talked.of("b", "prompt_tokens") == 100 + 10 - 3 + 20


@pytest.mark.parametrize(("sessions", "text", "message"), [
    ({"history": "actual"}, "a,0,1,1,s,0,,",
     'workload.sessions.history: format = "csv": rows have whole prompts unless accumulate = true'),
    ({"history_keeps_reasoning": False}, "a,0,1,1,s,0,,",
     'workload.sessions.history_keeps_reasoning: format = "csv": rows have whole prompts unless accumulate = true')])
def test_where_prompts_are_recorded_the_keys_are_refused(tmp_path, sessions, text, message):
    (tmp_path / "t.csv").write_text(f"{HEADER}\n{text}\n")
    with pytest.raises(InputErrors) as caught:
        play(tmp_path, tmp_path / "t.csv", sessions=sessions)
    assert message in caught.value.faults[0]


def test_keys_that_change_nothing_are_refused_all_at_once(tmp_path):
    with pytest.raises(InputErrors) as caught:
        talk(tmp_path, "a,0,1,1,s,0", header="request_id,arrived_at,num_prefill_tokens,num_decode_tokens,session,round",
             history="actual", history_keeps_reasoning=True)
    assert [fault.split("workload.sessions.")[1] for fault in caught.value.faults] == [
        "history: every output of this workload is as long as its max_tokens; leave it out",
        "history_keeps_reasoning: nothing says what of an output is reasoning; leave it out"]


@pytest.mark.parametrize(("name", "line"), [
    ("mooncake", '{"timestamp": 0, "input_length": 1, "output_length": 1}'),
    ("mooncake_delta", '{"timestamp": 0, "input_length": 1, "output_length": 1}')])
def test_other_formats_refuse_them(tmp_path, name, line):
    (tmp_path / "t.jsonl").write_text(f"{line}\n")
    with pytest.raises(InputErrors) as caught:
        play(tmp_path, tmp_path / "t.jsonl", name, sessions={"history": "declared", "accumulate": True})
    assert f'workload.sessions.accumulate: format = "{name}" does not read it' in caught.value.faults[0]
    with pytest.raises(InputErrors, match="a trace in it has whole prompts, or turns whose outputs are as long as"):
        play(tmp_path, tmp_path / "t.jsonl", name, sessions={"history": "declared"})


def test_accumulating_takes_rounds(tmp_path):
    with pytest.raises(InputErrors, match="a round adds to the one before it, and the trace has no column round"):
        talk(tmp_path, "0,1,1", header="arrived_at,num_prefill_tokens,num_decode_tokens")
