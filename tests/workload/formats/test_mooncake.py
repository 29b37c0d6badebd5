"""Mooncake's traces."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.mooncake import Mooncake, MooncakeParameters


def read(*lines, block_size=512):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return Mooncake(MooncakeParameters(block_size=block_size)).read("m.jsonl", text.encode())


def line(timestamp=0, prompt=600, output=5, hash_ids=(0, 1), **others):
    keys = {"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": list(hash_ids)}
    return keys | others


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        read(*lines)
    [only] = caught.value.faults
    return only


def test_times_are_milliseconds():
    assert read(line(0), line(1.5), line(40)).arrival_ns.tolist() == [0, 1_500_000, 40_000_000]


def test_blocks_become_shared_streams_and_the_last_may_be_partial():
    columns = read(line(prompt=600, hash_ids=[7, 9]), line(prompt=1024, hash_ids=[7, 2]))

    streams, tokens = columns.prompts.streams, columns.prompts.num_tokens
    assert columns.prompts.num_segments.tolist() == [2, 2]
    assert tokens.tolist() == [512, 88, 512, 512]
    assert streams[0] == streams[2]
    assert len({*streams.tolist()}) == 3
    assert (streams & 3 == 0).all()


def test_the_block_size_is_a_parameter():
    columns = read(line(prompt=17, hash_ids=[1, 2]), block_size=16)

    assert columns.prompts.num_tokens.tolist() == [16, 1]


def test_without_hash_ids_prompts_are_their_own():
    bare = {"timestamp": 0, "input_length": 600, "output_length": 5}

    assert read(bare).prompts is None
    assert read(bare, line()).prompts.num_segments.tolist() == [0, 2]


def test_other_keys_are_not_looked_at():
    assert read(line(turn=1, session="s")).prompt_tokens.tolist() == [600]


@pytest.mark.parametrize(("bad", "message"), [
    (line(prompt=0), "input_length: expected an integer >= 1, found 0"),
    (line(prompt=2**31), "input_length: expected an integer <= 2147483647, found 2147483648"),
    (line(prompt="6"), 'input_length: expected an integer, found "6"'),
    (line(output=-1), "output_length: expected an integer >= 0, found -1"),
    (line(-1), "timestamp: expected a number >= 0.0, found -1"),
    (line(1e13), "timestamp: expected a number <= 9000000000000.0, found 10000000000000.0"),
    (line(hash_ids=["x"]), 'hash_ids[0]: expected an integer, found ["x"]'),
    (line(hash_ids=[2**70]), "hash_ids[0]: expected an integer <= 9223372036854775807, found [1180591620717411303424]"),
    (line() | {"hash_ids": 5}, "hash_ids: expected a list, found 5"),
    (line(hash_ids=[1]),
     "hash_ids: expected 2 ids, blocks of 512 tokens for input_length 600, found 1; is block_size right?"),
    ('{"timestamp": 0}', "expected a JSON object with timestamp, input_length, output_length: "
                         "Object missing required field `input_length`"),
    ("[1]", "expected a JSON object with timestamp, input_length, output_length: Expected `object`, got `array`"),
    ('{"timestamp": "x", "y', 'timestamp: expected a number, found {"timestamp": "x", "y'),
])
def test_a_bad_line_is_named(bad, message):
    assert fault(line(), bad, line()) == f"m.jsonl:2: {message}"


def test_nan_is_no_number():
    found = fault('{"timestamp": NaN, "input_length": 1, "output_length": 1}')

    assert found.startswith("m.jsonl:1: expected a JSON object")


def test_endless_nesting_is_a_fault():
    assert fault('{"timestamp": ' + "[" * 100_000).startswith("m.jsonl:1: timestamp: expected a number, found")
    assert fault('{"other": ' + "[" * 100_000).startswith("m.jsonl:1: expected a JSON object")


def test_every_bad_line_is_reported():
    with pytest.raises(InputErrors) as caught:
        read(line(-1), line(), line(prompt=0))

    assert [each.split(": ")[0] for each in caught.value.faults] == ["m.jsonl:1", "m.jsonl:3"]


def test_blank_lines_are_no_requests_and_lines_keep_their_numbers():
    assert read(line(0), "", "  ", line(40), "").arrival_ns.tolist() == [0, 40_000_000]
    assert fault(line(0), "", line(-1)).startswith("m.jsonl:3: timestamp: ")
