"""Keys that a preset fills in: what the file says of them stays, or is refused, with file and key."""
import pytest
import tomli

from simulator.config.load import load_experiment, resolved_toml
from simulator.errors import InputErrors

MINIMAL = """
engine = {max_model_len = 8192, num_gpu_blocks = 1000}
latency = {backend = "linear"}
[workload]
type = "synthetic"
preset = "inferencex"
isl = 64
osl = 8
concurrency = 4
"""


@pytest.fixture
def faults(write):
    def faults(text, *overrides):
        with pytest.raises(InputErrors) as refused:
            load_experiment(write(MINIMAL + text), overrides, "--set")
        return list(refused.value.faults)
    return faults


def test_what_the_file_leaves_out_is_filled_in_and_written_down(write):
    told = tomli.loads(resolved_toml(load_experiment(write(MINIMAL))))["workload"]

    assert told["num_requests"] == 40
    assert [told["load"][key] for key in ("mode", "concurrency", "client_delay_s")] == ["concurrency", 4, 1e-6]
    assert told["warmup"]["copies_of_first"] == 8


def test_what_it_says_alike_is_no_fault(write):
    same = ('load = {mode = "concurrency", concurrency = 4, ramp_up_s = 0}\nwarmup = {copies_of_first = 8}\n'
            "num_requests = 40\n")

    assert load_experiment(write(MINIMAL + same)) == load_experiment(write(MINIMAL))


def test_what_it_says_otherwise_is_refused_even_if_it_is_the_default(faults):
    assert faults('load = {mode = "timestamps", ramp_up_s = 0.0}\n') == [
        'a.toml: workload.load.mode: preset = "inferencex" has "concurrency", found "timestamps"; leave it out']
    assert faults("warmup = {copies_of_first = 0}\n") == [
        'a.toml: workload.warmup.copies_of_first: preset = "inferencex" has 8, found 0; leave it out']


def test_all_of_it_is_told_with_who_said_it(faults):
    assert faults("num_requests = 3\n") == [
        'a.toml: workload.num_requests: preset = "inferencex" has 40, found 3; leave it out']
    assert faults('load = {mode = "concurrency", concurrency = 5}\n', "workload.warmup.copies_of_first=1") == [
        'a.toml: workload.load.concurrency: preset = "inferencex" has 4, found 5; leave it out',
        '--set: workload.warmup.copies_of_first: preset = "inferencex" has 8, found 1; leave it out']


def test_keys_that_the_preset_leaves_alone_are_the_files(write):
    given = load_experiment(write(MINIMAL + "measure = {warmup_requests = 3}\nload = {client_delay_s = 0.25}\n"))

    assert given.workload.measure.warmup_requests == 3
    assert given.workload.load.client_delay_s == 0.25
