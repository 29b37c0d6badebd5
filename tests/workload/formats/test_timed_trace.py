"""The dataset timed_trace of vllm bench serve."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.timed_trace import TimedTrace, TimedTraceParameters


def line(at, prompt, output, ids):
    return json.dumps({"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": ids})


def read(*lines, **keys):
    return TimedTrace(TimedTraceParameters(**keys)).read("t.jsonl", "\n".join(lines).encode())


def test_b3_a_prompt_is_its_chunks():
    found = read(line(2, 40, 5, [7, 8, 9]))

    assert found.arrival_ns.tolist() == [2_000_000_000]         # from the start, not from the first line
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([40], [5])
    assert found.prompts.num_tokens.tolist() == [16, 16, 8]
    with pytest.raises(InputErrors, match=r"t\.jsonl:1: hash_ids: expected 3 ids, blocks of 16 tokens for input_length "
                                          r"40, found 2; is block_size right"):
        read(line(2, 40, 5, [7, 8]))


def test_a_chunk_that_is_cut_has_other_tokens_than_the_whole_one():
    streams = read(line(0, 40, 5, [7, 8, 9]), line(0, 48, 5, [7, 8, 9]), line(0, 40, 5, [7, 8, 9])).prompts.streams

    assert streams[:2].tolist() == streams[3:5].tolist() == streams[6:8].tolist()
    assert streams[2] != streams[5]
    assert streams[2] == streams[8]


def test_chunks_and_times_have_their_units():
    found = read(line(1500, 40, 5, [7, 8]), line(0, 1, 1, [1]), block_size=20, timestamp_unit_s=0.001)

    assert found.arrival_ns.tolist() == [1_500_000_000, 0]
    assert found.notes == ("t.jsonl: 1 row is earlier than the one above; all are sorted by time.",)
    with pytest.raises(InputErrors, match=r"t\.jsonl:1: timestamp: expected at most 9e\+09 s, found 1e\+12"):
        read(line(1e12, 1, 1, [1]))
