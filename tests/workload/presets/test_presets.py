"""Requests as benchmark tools draw them."""
import random

import numpy as np
import pytest

from simulator.config.load import load_experiment
from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.errors import InputErrors
from simulator.workload.load import load
from simulator.workload.types.synthetic import Synthetic

EXPERIMENT = ('[latency]\nbackend = "linear"\n[engine]\nnum_gpu_blocks = 10\nmax_model_len = 100\n'
              '[workload]\ntype = "synthetic"\n')
AT_ONCE = "arrival = {rate_per_s = inf}\n"


def section(tmp_path, text):
    (tmp_path / "e.toml").write_text(EXPERIMENT + text)
    return load_experiment(tmp_path / "e.toml").workload


def drawn(tmp_path, text):
    return Synthetic(section(tmp_path, AT_ONCE + text).parameters).columns(RandomStreams(0))


def test_b1_the_random_dataset_of_vllm(tmp_path):
    found = drawn(tmp_path, 'preset = "vllm_random"\nnum_requests = 4\ninput_range_ratio = 0.5\n'
                  "output_range_ratio = 0.5\n")

    assert found.prompt_tokens.tolist() == [1383, 1164, 1035, 788]
    assert found.output_tokens.tolist() == [103, 69, 73, 66]
    assert found.prompts is None


def test_a_prefix_stands_before_the_random_part_and_special_tokens_are_subtracted(tmp_path):
    found = drawn(tmp_path, 'preset = "vllm_random"\nnum_requests = 2\ninput_len = 100\nprefix_len = 30\n'
                  "special_tokens = 1\noutput_len = 7\n")

    assert found.prompt_tokens.tolist() == [129, 129]
    assert found.output_tokens.tolist() == [7, 7]
    assert found.prompts.num_tokens.tolist() == [30, 99, 30, 99]
    assert found.prompts.streams[0] == found.prompts.streams[2]


def test_e6_gaps_come_from_the_tools_generator(tmp_path):
    text = ('num_requests = 5\npreset = "vllm_random"\n[workload.arrival]\nprocess = "gamma"\nrate_per_s = 10.0\n'
            "rescale_to_rate = true\n")

    found = Synthetic(section(tmp_path, text).parameters).columns(RandomStreams(9))

    assert (found.arrival_ns / 1e9).tolist() == pytest.approx(
        [0.0922587, 0.2378476, 0.3448686, 0.4361218, 0.5], abs=1e-7)


def test_b2_prefixes_repeat_and_what_is_left_over_is_told(tmp_path):
    found = drawn(tmp_path, 'preset = "vllm_prefix_repetition"\nnum_requests = 25\n')

    assert found.prompt_tokens.tolist() == [512] * 20
    assert found.output_tokens.tolist() == [128] * 20
    assert found.prompts.num_tokens.tolist() == [256] * 40
    prefixes = (found.prompts.streams[::2] >> 2).tolist()
    assert np.bincount(prefixes).tolist() == [2] * 10
    order = [k for k in range(10) for _ in range(2)]
    random.Random(0).shuffle(order)
    assert prefixes == order
    assert found.notes == ("preset vllm_prefix_repetition: 5 of 25 requests are not sent, so that each of 10 prefixes "
                           "has 2, as in vllm bench serve.",)


def test_inferencex_is_a_closed_loop_of_its_lengths(tmp_path):
    chosen = section(tmp_path, 'preset = "inferencex"\nisl = 1024\nosl = 1024\nconcurrency = 4\n')

    assert chosen.parameters.num_requests == 40
    assert chosen.parameters.parameters.warmup_copies_of_first == 8
    assert chosen.load == Load(mode="concurrency", concurrency=4, client_delay_s=1e-6)
    preset = Synthetic(chosen.parameters).preset
    assert preset.draw(None, 4).prompt_tokens.tolist() == [991, 866, 936, 1011]
    assert preset.draw(None, 4).output_tokens.tolist() == [886, 1014, 922, 828]
    built = load(chosen, 0)
    assert chosen.warmup.copies_of_first == 8
    assert len(built) == 48                 # in groups: the copies of the first, then the others
    assert [len(group.slots.opens_ns) for group in built.script.groups] == [4, 4]


LOOP = 'mode = "concurrency", concurrency = 4'


@pytest.mark.parametrize(("text", "message"), [
    ("num_requests = 41\n", 'workload.num_requests: preset = "inferencex" has 40, found 41; leave it out'),
    ("arrival = {rate_per_s = 1.0}\n", "sends requests in a closed loop"),
    ("time_scale = 2.0\n", "sends requests in a closed loop"),
    ('load = {mode = "concurrency", concurrency = 5}\n',
     'workload.load.concurrency: preset = "inferencex" has 4, found 5; leave it out'),
    ('load = {mode = "lanes", lanes = 5}\n', 'workload.load.lanes: preset = "inferencex" has none, found 5'),
    ('load = {mode = "timestamps"}\n', 'load.mode: preset = "inferencex" has "concurrency", found "timestamps"'),
    ("warmup = {copies_of_first = 3}\n", "workload.warmup.copies_of_first: preset = \"inferencex\" has 8, found 3"),
    ("warmup = {copies_of_first = 0}\n", "workload.warmup.copies_of_first: preset = \"inferencex\" has 8, found 0"),
    ("warmup = {stage = {rate_per_s = 1.0, num_requests = 3}}\n", "warmup.stage: preset = .* has none, found a table"),
    (f"load = {{think_time_s = 1.0, {LOOP}}}\n", 'think_time_s: preset = "inferencex" has 0.0, found 1.0'),
    (f'load = {{think_time_s = {{distribution = "exponential", mean = 1.0}}, {LOOP}}}\n',
     'think_time_s: preset = "inferencex" has 0.0, found a table'),
    ('prompt_tokens = {distribution = "constant", tokens = 5}\n', "workload.prompt_tokens: unknown key")])
def test_what_contradicts_a_preset_is_refused(text, message, tmp_path):
    with pytest.raises(InputErrors, match=message):
        section(tmp_path, f'preset = "inferencex"\nisl = 1024\nosl = 1024\nconcurrency = 4\n{text}')


def test_a_client_delay_goes_with_inferencex(tmp_path):
    given = section(tmp_path, 'preset = "inferencex"\nisl = 9\nosl = 9\nconcurrency = 4\n'
                    "load = {client_delay_s = 0.1}\n")

    assert given.load == Load(mode="concurrency", concurrency=4, client_delay_s=0.1)


def test_rows_of_burstgpt_are_sampled_as_pandas_does(tmp_path):
    pandas = pytest.importorskip("pandas")
    lines = [f"{i},{'GPT-4' if i % 3 else 'ChatGPT'},{100 + i},{i % 7},0,x" for i in range(60)]
    (tmp_path / "b.csv").write_text("\n".join(
        ["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", *lines]))
    table = pandas.read_csv(tmp_path / "b.csv")
    table = table[(table["Model"] == "GPT-4") & (table["Response tokens"] > 0)]

    for count in (20, 100):
        expected = table.sample(n=count, random_state=5, replace=count > len(table))
        found = drawn(tmp_path, f'preset = "vllm_burstgpt"\npath = "b.csv"\nseed = 5\nnum_requests = {count}\n')
        assert found.prompt_tokens.tolist() == expected["Request tokens"].tolist()
        assert found.output_tokens.tolist() == expected["Response tokens"].tolist()


def test_sharegpt_takes_lengths_and_refuses_text(tmp_path):
    (tmp_path / "s.csv").write_text(
        "num_prefill_tokens,num_decode_tokens\n3,9\n10,20\n30,3\n1025,9\n40,50\n1000,1049\n")
    text = 'preset = "vllm_sharegpt"\npath = "s.csv"\n'

    found = drawn(tmp_path, f"{text}num_requests = 5\n")

    order = list(range(6))
    random.Random(0).shuffle(order)
    valid = [row for row in order if row in (1, 4)]         # the others are too short, too long, or both together
    rows = valid + random.Random(0).choices(valid, k=3)
    assert found.prompt_tokens.tolist() == [{1: 10, 4: 40}[row] for row in rows]
    assert found.output_tokens.tolist() == [{1: 20, 4: 50}[row] for row in rows]
    assert (found.prompts.streams >> 2).tolist() == rows
    assert "3 of 5 requests repeat others" in found.notes[0]
    assert set(drawn(tmp_path, f"{text}num_requests = 3\noutput_len = 1\n").output_tokens) == {1}
    (tmp_path / "s.csv").write_text('[{"conversations": []}]')
    with pytest.raises(InputErrors, match="this is text, and nothing here counts its tokens; write a CSV file"):
        drawn(tmp_path, f"{text}num_requests = 5\n")


@pytest.mark.parametrize(("text", "message"), [
    ('preset = "vllm_random"\nnum_requests = 1\ninput_len = 0\n', "the shortest prompt would have no token"),
    ('preset = "vllm_random"\nnum_requests = 1\ninput_range_ratio = 1.0\n', "input_range_ratio: expected"),
    ('preset = "vllm_prefix_repetition"\nnum_requests = 9\n', "9 requests are fewer than num_prefixes = 10"),
    ('preset = "inferencex"\nisl = 1\nosl = 9\nconcurrency = 1\n', "isl: the shortest would have no token")])
def test_what_makes_no_request_is_refused(text, message, tmp_path):
    with pytest.raises(InputErrors, match=message):
        drawn(tmp_path, text)


def test_a_loop_that_a_duration_ends_has_no_number_to_draw(tmp_path):
    chosen = section(tmp_path, 'preset = "vllm_random"\nduration_s = 1.0\n'
                     'load = {mode = "concurrency", concurrency = 2}\n')

    with pytest.raises(InputErrors, match='num_requests: missing; preset = "vllm_random" draws all its requests'):
        load(chosen, 0)
