"""A workload that is written as a native trace reads back to equal requests."""
import io

import numpy as np
import pytest
from msgspec.structs import replace

import simulator
from simulator.domain.records import named_stream, output_stream, own_stream
from simulator.domain.traits import OutputKnowledge
from simulator.errors import InputErrors
from simulator.study.shared_prefixes import shared_tokens
from simulator.workload.build import build_workload
from simulator.workload.columns import LABELS, Columns, Prompts, in_arrival_order
from simulator.workload.formats.native_csv import NativeCsv
from simulator.workload.formats.native_csv_writer import seconds_text, write_trace
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.output_knowledge import with_knowledge
from support.scripts import MS, plays, scripted

TEXTS = ["plain", "with, comma", 'with "quotes"', "two\nlines", " spaces ", "é", "a.own", "1"]


def written(workload, **options):
    file = io.StringIO(newline="")
    write_trace(workload, file, **options)
    return file.getvalue()


def read(text):
    columns = in_arrival_order(NativeCsv(None).read("trace.csv", text.encode()))
    return build_workload(with_knowledge(columns, OutputKnowledge(
        predictor="column" if "predicted_tokens" in columns.facts else "none"), 0))


def random_columns(rng):
    """Return requests that say all that a trace can say, or parts of it; the last of them may not come."""
    count = int(rng.integers(1, 40))

    def some(values, chance=0.7, absent=MISSING):
        return np.where(rng.random(count) < chance, values, absent)

    outputs = rng.integers(0, 50, count)
    given = {
        "request_ids": [f"{TEXTS[i % 5]}{i}" for i in range(count)] if rng.random() < 0.5 else rng.permutation(count),
        "priority": rng.integers(-2**31, 2**31, count) if rng.random() < 0.5 else None,
        "max_tokens": some(rng.integers(1, 50, count)) if rng.random() < 0.5 else None,
        "timeout_ns": some(rng.integers(0, MAX_TIME_NS, count) >> rng.integers(0, 60, count)),
        "expected_tokens": some(rng.integers(0, 90, count), absent=-1) if rng.random() < 0.5 else None,
        "labels": {label: (some(rng.integers(0, len(TEXTS), count), absent=-1), TEXTS) for label in LABELS},
        "facts": {"reasoning_tokens": some(outputs // 2), "num_images": some(rng.integers(1, 9, count)),
                  "image_tokens": some(rng.integers(0, 2, count))},
        "prompts": random_prompts(rng, count) if rng.random() < 0.7 else None,
    }
    prompts = given["prompts"]
    lengths = rng.integers(1, 99, count)
    if prompts is not None:
        sums = np.add.reduceat(np.append(prompts.num_tokens, 0), np.cumsum(prompts.num_segments) - prompts.num_segments)
        lengths = np.where(prompts.num_segments > 0, sums, lengths)
    arrival_ns = rng.integers(0, MAX_TIME_NS, count) >> rng.integers(0, 62, count)
    columns = in_arrival_order(Columns(arrival_ns, lengths, outputs, **given))
    return replace(columns, most=int(rng.integers(1, count + 1)))


def random_prompts(rng, count):
    """Return prompts of names, own streams and outputs."""
    counts = rng.integers(0, 4, count)
    owners = np.repeat(np.arange(count), counts)
    others = (owners + rng.integers(1, max(count, 2), len(owners))) % count
    kinds = rng.integers(0, 4 if count > 1 else 2, len(owners))
    streams = np.choose(kinds, [
        named_stream(rng.integers(0, 3, len(owners))), own_stream(owners), own_stream(others), output_stream(others)])
    return Prompts(counts, streams, rng.integers(1, 30, len(owners)))


@pytest.mark.parametrize("seed", range(40))
def test_all_that_a_request_says_reads_back(seed):
    workload = build_workload(random_columns(np.random.default_rng(seed)))

    back = read(written(workload))

    assert back.requests.tobytes() == workload.requests.tobytes()
    assert back.outcomes.tobytes() == workload.outcomes.tobytes()
    for name in ("deadline_ns", "due_ns", "max_tokens", "priority", "tie_rank", "expected_tokens"):
        assert back.demands[name].tolist() == workload.demands[name].tolist(), name
    for label in LABELS:
        assert names_of(back, label) == names_of(workload, label)
    assert list(map(str, back.request_ids)) == list(map(str, workload.request_ids))
    assert {name: values.tolist() for name, values in back.facts.items()} == {
        name: values.tolist() for name, values in workload.facts.items()}
    assert shared_tokens(back).tolist() == shared_tokens(workload).tolist()
    assert written(read(written(back))) == written(back)


def names_of(workload, label):
    names = [None, *workload.labels.get(label, ())]
    return [names[code + 1] for code in workload.demands[label].tolist()]


@pytest.mark.parametrize(("time_ns", "text"), [
    (0, "0"), (1, "0.000000001"), (10**9, "1"), (1_500_000_000, "1.5"), (9 * 10**18 - 1, "8999999999.999999999")])
def test_times_are_exact(time_ns, text):
    assert seconds_text(time_ns) == text


def test_streams_keep_their_owners():
    # the third has the output of a tenth request, which does not come
    prompts = Prompts(np.array([2, 3, 1]), np.array([
        named_stream(4), own_stream(0), own_stream(0), output_stream(0), own_stream(1), output_stream(9)]),
        np.array([6, 4, 10, 3, 2, 8]))
    workload = build_workload(in_arrival_order(Columns(
        np.array([0, 1, 2]), np.array([10, 15, 8]), np.array([3, 1, 1]), request_ids=["a", "b", "c"], prompts=prompts)))

    assert [line.split(",")[-1] for line in written(workload).splitlines()] == [
        "prompt", "s0:6/:4", "a.own:10/a.out:3/:2", "s3:8"]


def test_plays_are_written_with_whom_they_wait_for():
    # the worked example D1 of three requests, and a session of two
    workload = scripted([2, 3, 1, 1, 1], plays(
        [3, 2], [(0, 1, "dispatch", 0.5), (0, 2, "end", 1), (1, 2, "end", 2), (3, 4, "end", 0)],
        starts_ms=[0, 7], offset_ns=np.array([0, 0, 4 * MS, 0, 0])), prompts=5)

    assert written(workload).splitlines() == [
        "request_id,arrived_at,num_prefill_tokens,num_decode_tokens,play,wait_for,not_before_s",
        "0,0,5,2,0,,",
        "1,0,5,3,0,0:start+0.0005,",
        "2,0,5,1,0,0:end+0.001|1:end+0.002,0.004",
        "3,0.007,5,1,1,,",
        "4,0.007,5,1,1,3:end+0,"]


def test_an_id_that_cannot_be_referred_to_is_refused():
    prompts = Prompts(np.array([0, 1]), np.array([output_stream(0)]), np.array([5]))
    workload = build_workload(in_arrival_order(Columns(
        np.array([0, 1]), np.array([5, 5]), np.array([3, 1]), request_ids=["a/b", "c"], prompts=prompts)))

    with pytest.raises(InputErrors, match=r'request_id "a/b": another request refers to it'):
        written(workload)
    workload.segments["stream"] = own_stream(1)
    assert written(workload).splitlines()[1:] == ["a/b,0,5,3,", "c,0.000000001,5,1,:5"]        # nobody refers to it


def test_the_written_trace_is_served_alike(tmp_path):
    settings = {"workload.type": "synthetic", "workload.num_requests": 60}
    experiment = tmp_path / "a.toml"
    experiment.write_text("""
        engine = {num_gpu_blocks = 60, max_model_len = 512, max_num_seqs = 8}
        latency = {backend = "linear"}
        [workload]
        type = "synthetic"
        num_requests = 60
        arrival = {process = "poisson", rate_per_s = 50.0}
        prompt_tokens = {distribution = "uniform", min = 1, max = 90}
        output_tokens = {distribution = "uniform", min = 0, max = 30}
        system_prompts = {share = 0.8, num_tokens = 64, num_prompts = 4}
        adapters = {names = ["x", "y"], none_share = 0.5}
        images = {count = {distribution = "uniform", min = 0, max = 1}, sizes = [[28, 28, 1]]}
        """)
    drawn = simulator.run(experiment, settings)
    given = simulator.config.load.load_experiment(experiment)
    (tmp_path / "a.csv").write_text(written(simulator.workload.load.load(given.workload, 0, parts=given.parts())))
    replayed = tmp_path / "b.toml"
    replayed.write_text("""
        engine = {num_gpu_blocks = 60, max_model_len = 512, max_num_seqs = 8}
        latency = {backend = "linear"}
        workload = {type = "trace", path = "a.csv", time_origin = "trace"}
        """)
    served = simulator.run(replayed)

    assert served.requests.tobytes() == drawn.requests.tobytes()
    assert served.iterations.tobytes() == drawn.iterations.tobytes()
