"""Texts of experiments with other values: comments and order stay."""
import tomli

from simulator.study.exploring.editing import with_values

TEXT = """\
# the first line stays
name = "small"          # and this comment

[engine]
scheduler = "vllm"
max_num_seqs = 8        # "#" in a comment
name = "a # b"  # behind

[workload]
type = "synthetic"
num_requests = 5

[workload.arrival]
rate_per_s = 2.0

[[pools]]
name = "a"
"""


def changed_lines(text, values):
    found = with_values(text, "small.toml", values).splitlines()
    old = text.splitlines()
    return [line for line in old if line not in found], [line for line in found if line not in old]


def test_a_value_is_replaced_in_its_line():
    assert changed_lines(TEXT, {"engine.max_num_seqs": 16}) == (
        ['max_num_seqs = 8        # "#" in a comment'], ['max_num_seqs = 16        # "#" in a comment'])
    assert changed_lines(TEXT, {"engine.name": "c"})[1] == ['name = "c"  # behind']


def test_a_new_key_comes_last_in_its_table():
    lines = with_values(TEXT, "small.toml", {"engine.block_size": 32, "seed": 3, "slo.ttft_ms": 500.0}).splitlines()

    assert lines[0] == "seed = 3" or lines.index("seed = 3") < lines.index("[engine]")
    assert lines.index("block_size = 32") < lines.index("[workload]")
    assert lines[-2:] == ["[slo]", "ttft_ms = 500.0"]


def test_a_key_that_is_left_out_takes_its_empty_table_along():
    removed, added = changed_lines(TEXT, {"workload.arrival.rate_per_s": None})

    assert (removed, added) == (["[workload.arrival]", "rate_per_s = 2.0"], [])


def test_keys_of_a_class_that_is_chosen_no_longer_go():
    removed, added = changed_lines(TEXT.replace('name = "a # b"  # behind\n', ""), {"engine.scheduler": "sglang"})

    assert removed == ['scheduler = "vllm"', 'max_num_seqs = 8        # "#" in a comment']
    assert added == ['scheduler = "sglang"']


def test_texts_that_no_line_can_be_found_in_are_written_anew():
    inline = 'engine = {scheduler = "vllm"}\nextends = "base.toml"\n'
    found = with_values(inline, "small.toml", {"engine.block_size": 8})

    assert tomli.loads(found) == {"engine": {"scheduler": "vllm", "block_size": 8}, "extends": "base.toml"}
