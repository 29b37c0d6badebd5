"""Who shares a stream of tokens in the workload shares it on the wire."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.study.observe.prompts import WORDS, Pace, Prompts
from support.workloads import plain_workload

IDS = range(1000, 32_000)
SHARED = records.named_stream(0)


def workload_of(*prompts):
    """Return requests whose prompts are pieces (stream, tokens)."""
    workload = plain_workload(np.zeros(len(prompts)), [sum(tokens for _, tokens in prompt) for prompt in prompts], 5)
    counts = np.array([len(prompt) for prompt in prompts])
    workload.demands["num_segments"] = counts
    workload.demands["segments_begin"] = np.cumsum(counts) - counts
    segments = np.array([piece for prompt in prompts for piece in prompt], records.SEGMENT)
    return replace(workload, segments=segments)


def test_prompts_are_as_long_as_the_workload_says_and_differ():
    prompts = Prompts(plain_workload([0, 0], [40, 30], 5), 0, IDS)
    one, other = prompts.token_ids(0, {}), prompts.token_ids(1, {})

    assert (len(one), len(other)) == (40, 30)
    assert one[:3] != other[:3]
    assert all(each in IDS for each in one + other)


def test_a_shared_stream_is_an_equal_prefix():
    prompts = Prompts(workload_of([(SHARED, 20), (records.own_stream(0), 5)],
                                  [(SHARED, 12), (records.own_stream(1), 5)]), 0, IDS)
    one, other = prompts.token_ids(0, {}), prompts.token_ids(1, {})

    assert one[:12] == other[:12] and one[12:14] != other[12:14]


def test_another_seed_or_salt_shares_nothing():
    workload = plain_workload(0, 40, 5)
    texts = [Prompts(workload, seed, IDS, salt).token_ids(0, {})[:5] for seed, salt in ((0, ""), (1, ""), (0, "/warm"))]

    assert len({tuple(text) for text in texts}) == 3


def test_an_answer_stands_in_a_later_prompt_as_it_was_given():
    prompts = Prompts(workload_of([(SHARED, 3)], [(SHARED, 3), (records.output_stream(0), 5),
                                                  (records.own_stream(1), 2)]), 0, IDS)
    unknown = prompts.token_ids(1, {})
    shorter = prompts.token_ids(1, {0: [7, 8, 9]})

    assert prompts.repeated == {0}
    assert prompts.token_ids(1, {0: [1, 2, 3, 4, 5, 6]})[3:8] == [1, 2, 3, 4, 5]
    assert shorter[3:6] == [7, 8, 9] and shorter[6:] == unknown[6:] and len(shorter) == 10


def test_words_are_as_many_as_a_probe_says():
    # 1.5 tokens a word, 10 around the text: 100 tokens are 60 words
    workload = plain_workload(0, 100, 5)
    [turn] = Prompts(workload, 0, IDS).messages(0, {}, Pace(1.5, 10.0))

    assert turn["role"] == "user"
    words = turn["content"].split()
    assert len(words) == 60 and set(words) <= set(WORDS)


def test_a_conversation_holds_the_answers_of_the_assistant():
    prompts = Prompts(workload_of([(SHARED, 30)], [(SHARED, 30), (records.output_stream(0), 5),
                                                   (records.own_stream(1), 8)]), 0, IDS)
    turns = prompts.messages(1, {0: "the answer"}, Pace(2.0, 10.0))

    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == "the answer"
    assert [len(turn["content"].split()) for turn in turns] == [10, 2, 4]       # (30 - 10) / 2; 8 / 2
    assert turns[0] == prompts.messages(0, {}, Pace(2.0, 10.0))[0]


def test_words_are_many():
    assert len(set(WORDS)) == len(WORDS) >= 64
