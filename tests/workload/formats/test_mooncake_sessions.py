"""Sessions and graphs in Mooncake's format, and turns that tell new tokens alone; iterations of 1 ms."""
import gzip

import pytest

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.formats.mooncake import Mooncake, MooncakeParameters
from simulator.workload.formats.mooncake_delta import MooncakeDelta
from support.traces import json_lines, play


def read(*lines, reader=Mooncake, block_size=4):
    return reader(MooncakeParameters(block_size=block_size)).read("m.jsonl", json_lines(*lines).encode())


def fault(*lines, **how):
    with pytest.raises(InputErrors) as caught:
        read(*lines, **how)
    [only] = caught.value.faults
    return only


def line(prompt=1, output=1, **others):
    return {"input_length": prompt, "output_length": output} | others


def edges(columns):
    waits = columns.waits
    return list(zip(waits.sources.tolist(), waits.targets.tolist(), waits.delays_ns.tolist(), strict=True))


def test_a_turn_comes_after_its_delay_or_as_its_timestamp_is_later():
    columns = read(line(timestamp=5, session_id="s"), line(delay=2.5, session_id="s"),
                   line(timestamp=1, session_id="t"), line(timestamp=41, session_id="t"), line(timestamp=7))

    assert edges(columns) == [(0, 1, 2_500_000), (2, 3, 40_000_000)]
    assert columns.waits.plays.tolist() == [0, 0, 1, 1, 2]
    assert columns.arrival_ns[[0, 2, 4]].tolist() == [5_000_000, 1_000_000, 7_000_000]
    assert columns.labels["session"][1] == ["s", "t"]


def test_other_names_of_the_same_keys():
    columns = read({"created_time": 5, "input_tokens": 6, "output_tokens": 7, "request_id": "a", "session_id": 1},
                   {"delay_ms": 3, "hash_ids": [1, 2], "output_length": 1, "session_id": 1})

    assert (columns.prompt_tokens.tolist(), columns.output_tokens.tolist()) == ([6, 8], [7, 1])
    assert (edges(columns), columns.request_ids) == ([(0, 1, 3_000_000)], ["a", "1"])


def test_high_priorities_come_first_and_classes_are_labels():
    columns = read(line(timestamp=0, priority=5, policy_class="interactive"), line(timestamp=0, strict_priority=2))

    assert columns.priority.tolist() == [-5, 0]
    assert columns.labels["slo_class"][1] == ["interactive"]
    assert columns.notes == ("the trace gives 1 requests a strict_priority, which has no effect here",)


def test_lines_of_a_graph_wait_for_others():
    # a and b end at 3 and 1 ms; c waits for both and 2 + 0.5 ms.
    columns = read(line(output=3, timestamp=0, request_id="a"), line(timestamp=0, request_id="b"),
                   line(request_id="c", wait_for=["a", "b"], delay=2, tool_wait_ms=0.5), line(timestamp=9))

    assert edges(columns) == [(0, 2, 2_500_000), (1, 2, 2_500_000)]
    assert columns.waits.plays.tolist() == [0, 0, 0, 1]


def test_a_graph_is_played(tmp_path):
    path = tmp_path / "g.jsonl.gz"
    path.write_bytes(gzip.compress(json_lines(
        line(output=3, timestamp=0, request_id="a"), line(timestamp=1, request_id="b"),
        line(request_id="c", wait_for=["a", "b"], delay=2, tool_wait_ms=0.5)).encode()))
    played = play(tmp_path, path, "mooncake")

    assert [played.ms(name) for name in "abc"] == [(0, 3), (1, 2), (5.5, 6.5)]


@pytest.mark.parametrize(("lines", "message"), [
    ([line(timestamp=0, session_id="s", delay=1)], "1: delay: the first line of a session has nothing to wait for, "
                                                   "found 1"),
    ([line(session_id="s")], "1: expected a JSON object with timestamp, input_length, output_length: Object missing "
                             "required field `timestamp`"),
    ([line(timestamp=5, session_id="s"), line(timestamp=4, session_id="s")],
     "2: timestamp: expected at least that of the line before it in its session, 5, found 4"),
    ([line(timestamp=5, session_id="s"), line(session_id="s")],
     "2: delay: expected one, or a timestamp on this line and on the one before it in its session"),
    ([line(timestamp=0), line(wait_for=["x"])], '2: wait_for: expected the request_id of a line, found "x"'),
    ([line(timestamp=0), line(wait_for=["0"], timestamp=3)],
     "2: timestamp: stands on lines that wait for nobody, found 3"),
    ([line(timestamp=0, request_id="a"), line(timestamp=0, request_id="a"), line(wait_for=["a"])],
     '2: request_id: expected an id that is not that of line 1, found "a"'),
    ([line(timestamp=0), line(wait_for=["1"])], "2: wait_for: the request waits for itself, by way of others"),
])
def test_a_line_that_cannot_be_is_named(lines, message):
    assert fault(*lines) == f"m.jsonl:{message}"


DELTA = [line(8, 3, timestamp=0, session_id="s", hash_ids=[1, 2]),
         line(5, 1, delay=100, session_id="s", hash_ids=[3, 4])]


def test_d4_a_turn_tells_what_it_adds(tmp_path):
    columns = read(*DELTA, reader=MooncakeDelta)
    first, second = records.named_stream(0), records.named_stream(1)

    assert columns.prompt_tokens.tolist() == [8, 16]
    assert columns.prompts.num_segments.tolist() == [2, 5]
    assert columns.prompts.streams.tolist()[:2] == [first, second]
    assert list(zip(columns.prompts.streams.tolist(), columns.prompts.num_tokens.tolist(), strict=True))[2:] == [
        (first, 4), (second, 4), (records.output_stream(0), 3), (records.named_stream(2), 4),
        (records.named_stream(3), 1)]                   # 11 tokens in common with what the first has said
    (tmp_path / "d.jsonl").write_text(json_lines(*DELTA))
    played = play(tmp_path, tmp_path / "d.jsonl", "mooncake_delta", block_size=4)

    assert played.all_ms() == [(0, 3), (103, 104)]
    assert played.of("1", "cached_tokens") == 0         # blocks of 16
    played = play(tmp_path, tmp_path / "d.jsonl", "mooncake_delta", block_size=4, engine={"block_size": 1})
    assert played.of("1", "cached_tokens") == 10        # the last generated token was never fed back


def test_a_turn_without_ids_adds_tokens_of_its_own():
    columns = read(line(8, 3, timestamp=0, session_id="s"), line(5, 0, delay=1, session_id="s"),
                   line(2, 1, delay=1, session_id="s"), reader=MooncakeDelta)

    assert columns.prompt_tokens.tolist() == [8, 16, 18]
    assert columns.prompts.streams.tolist()[-4:] == [records.own_stream(0), records.output_stream(0),
                                                     records.own_stream(1), records.own_stream(2)]


def test_turns_that_only_add_wait_for_no_other():
    assert "m.jsonl:1: wait_for: a turn adds to the one before it" in fault(
        line(8, 3, timestamp=0, wait_for=["a"]), reader=MooncakeDelta)
    assert "the prompt has 2147483650 tokens by now" in fault(
        line(2**31 - 1, 2, timestamp=0, session_id="s"), line(1, 1, delay=0, session_id="s"), reader=MooncakeDelta)
