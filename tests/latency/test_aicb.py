"""Iterations looked up in small tables by hand: models of two layers (tests/support/small_models.py)."""
import hashlib
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.collective.busbw.model import Busbw
from simulator.errors import InputErrors
from simulator.latency.aicb.model import Aicb
from simulator.latency.aicb.tables import Layout, file_name
from support.small_models import DENSE, MIXTURE, NODE, deploy

NS = 1e-9
NO_LATENCY = {"collective_latency_us": 0.0}


def write(folder, phase, size, length, rows, **layout):
    """Write a table: rows of (layer, component, ns, bytes)."""
    ways = dict.fromkeys(("world_size", "tensor_parallel", "pipeline_parallel", "expert_parallel"), 1) | layout
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    (folder / file_name(Layout(model="M", phase=phase, **ways), size, length)).write_text(text)


def layers(attention, mlp=0, comm=0):
    """Return rows of two layers that are alike."""
    return [(layer, name, ns, comm) for layer in (0, 1) for name, ns in (("attention", attention), ("mlp", mlp))]


def moe_layers(attention, mlp, moe, exchange, comm=0):
    return [(0, "attention", attention, comm), (0, "mlp", mlp, comm), (1, "attention", attention, comm),
            (1, "moe", moe, exchange)]


def aicb(folder, model=DENSE, collective=None, ways=None, **parameters):
    return Aicb(Aicb.Parameters(tables=str(folder), **parameters), deploy(model, **(ways or {})), collective)


@pytest.fixture
def dense(tmp_path):
    """Decodes: 2 x (attention + 50); attention 100 + 10 n at 100, twice that at 200. Prompts: square attention."""
    for size in (1, 4):
        for length, factor in ((100, 1), (200, 2)):
            write(tmp_path, "decode", size, length, layers((100 + 10 * size) * factor, 50))
    for tokens in (100, 200, 400):
        write(tmp_path, "prefill", 1, tokens, layers(tokens ** 2, 10 * tokens))
    return tmp_path


# ---- lookup

def test_an_iteration_is_the_sum_of_its_layers(dense):
    # KV holds 101 tokens after the step, 100 before: 2 x (110 + 50)
    assert aicb(dense).predict(decode=[101]) == pytest.approx(320 * NS)
    # 2 x (200 ** 2 + 2000)
    assert aicb(dense).predict(prefill=[(200, 0)]) == pytest.approx(84_000 * NS)


def test_lengths_are_interpolated(dense):
    # halfway between 110 and 220
    assert aicb(dense).predict(decode=[151]) == pytest.approx(2 * (165 + 50) * NS)
    # 300 tokens: halfway between 40,000 + 2000 and 160,000 + 4000
    assert aicb(dense).predict(prefill=[(300, 0)]) == pytest.approx(2 * (100_000 + 3000) * NS)


def test_batch_sizes_are_interpolated(dense):
    # 2 sequences, a third of the way from 110 to 140: 120
    assert aicb(dense).predict(decode=[101, 101]) == pytest.approx(2 * (120 + 50) * NS)
    # and halfway between that and twice that
    assert aicb(dense).predict(decode=[151, 151]) == pytest.approx(2 * (180 + 50) * NS)


def test_the_length_of_a_batch_is_the_mean_of_its_sequences(dense):
    model = aicb(dense)

    # 100, 200, 150, 150 tokens before the step
    assert model.predict(decode=[101, 201, 151, 151]) == pytest.approx(2 * (210 + 50) * NS)


def test_layers_may_differ(tmp_path):
    write(tmp_path, "decode", 1, 100, [(0, "attention", 1, 0), (0, "mlp", 20, 0), (1, "attention", 300, 0),
                                       (1, "mlp", 4000, 0)])
    write(tmp_path, "prefill", 1, 100, layers(1))

    assert aicb(tmp_path).predict(decode=[101]) == pytest.approx(4321 * NS)


@pytest.mark.parametrize(("batch", "expected_ns"), [
    ({"decode": [51]}, 2 * (110 + 50)),                     # too short: the table of 100
    ({"decode": [901]}, 2 * (220 + 50)),                    # too long: that of 200
    ({"decode": [101] * 9}, 2 * (140 + 50)),                # too many: that of 4 sequences
    ({"prefill": [(1000, 0)]}, 2 * (400 ** 2 + 4000)),      # too long: that of 400
])
def test_beyond_the_tables_the_nearest_one_speaks_and_is_counted(dense, batch, expected_ns):
    model = aicb(dense)

    assert model.predict(**batch) == pytest.approx(expected_ns * NS)
    assert counted(model) == {"exact": 0, "interpolated": 0, "nearest": 1, "sources": []}
    assert len(model.warnings()) == 1


def counted(model):
    return {name: told for name, told in model.provenance().items() if name != "tables"}


def test_provenance_tells_files_and_what_they_measured(dense):
    told = aicb(dense).provenance()["tables"]

    assert (told["decode"]["file"], told["decode"]["version"]) == (str(dense), "")
    assert told["decode"]["measured"] == {"sequences": [1, 4], "tokens": [100, 200]}
    files = sorted(dense.glob("*-prefill.csv"), key=lambda path: int(re.search(r"seq(\d+)", path.name)[1]))
    digests = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files)
    assert told["prefill"]["sha256"] == hashlib.sha256(digests.encode()).hexdigest()


def test_provenance_counts_predictions_by_trust(dense):
    model = aicb(dense)
    for contexts in ([101], [201], [151], [101, 101], [500]):
        model.predict(decode=contexts)

    assert counted(model) == {"exact": 2, "interpolated": 2, "nearest": 1, "sources": []}
    assert model.warnings() == [
        "aicb: 1 of 5 decode iterations lie beyond the tables (up to 4 sequences, of the most lengths 100 to 200): "
        "up to 1 sequence of length 499; the nearest table was taken"]


def test_a_batch_beyond_the_tables_is_an_error_where_the_user_says_so(dense):
    model = aicb(dense, outside="error")

    with pytest.raises(InputErrors, match=r"^latency.outside: aicb: 1 of 1 prefill iterations lie beyond the tables"):
        model.predict(prefill=[(500, 0)])


def test_between_batch_sizes_only_the_lengths_of_both_are_covered(tmp_path):
    write(tmp_path, "decode", 1, 100, layers(10))
    write(tmp_path, "decode", 1, 200, layers(20))
    write(tmp_path, "decode", 3, 150, layers(30))
    write(tmp_path, "prefill", 1, 100, layers(1))
    model = aicb(tmp_path)

    model.predict(decode=[151] * 2)         # halfway between 15 and 30
    assert model.provenance()["interpolated"] == 1
    model.predict(decode=[181] * 2)
    assert model.provenance()["nearest"] == 1


GRID = {(size, length): 1000 + 37 * size + 3 * length + size * length % 11
        for size, lengths in {2: (50, 90, 300), 5: (60, 90), 6: (10, 400), 9: (100,)}.items() for length in lengths}


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Return a backend whose decodes are twice GRID."""
    folder = tmp_path_factory.mktemp("tables")
    for (size, length), ns in GRID.items():
        write(folder, "decode", size, length, layers(ns))
    write(folder, "prefill", 1, 100, layers(1))
    return aicb(folder)


def straight(points, x):
    """Return the value at `x` on lines between (position, value) pairs, that of the nearest beyond them."""
    points = sorted(points)
    x = min(max(x, points[0][0]), points[-1][0])
    for (left, low), (right, high) in pairwise(points):
        if left <= x <= right:
            return low + (high - low) * (x - left) / (right - left)
    return points[0][1]


@given(queries=st.lists(st.tuples(st.integers(1, 12), st.integers(2, 500)), min_size=1, max_size=5))
def test_lookups_agree_with_a_plain_interpolation(grid, queries):
    for count, context in queries:
        sizes = {size for size, _ in GRID}
        rows = [(size, straight([(length, ns) for (each, length), ns in GRID.items() if each == size], context - 1))
                for size in sizes]
        expected = 2 * straight(rows, count)
        assert grid.predict(decode=[context] * count) == pytest.approx(expected * NS, rel=1e-12)


# ---- what an iteration is made of

def test_prompts_attend_to_themselves_and_share_the_rest(dense):
    # attention 2 x (100 ** 2 + 200 ** 2), the rest that of 300 tokens: 2 x 3000
    assert aicb(dense).predict(prefill=[(100, 0), (200, 0)]) == pytest.approx((100_000 + 6000) * NS)


def test_the_attention_of_chunks_adds_up_to_that_of_the_prompt(dense):
    model = aicb(dense)
    whole, first, second = (model.breakdown(prefill=[chunk]) for chunk in ((400, 0), (200, 0), (200, 200)))

    assert first["attention"] + second["attention"] == pytest.approx(whole["attention"])


def test_a_chunk_takes_at_least_what_it_takes_alone(tmp_path):
    write(tmp_path, "decode", 1, 100, layers(1))
    for tokens in (100, 200, 400):
        write(tmp_path, "prefill", 1, tokens, layers(500))       # launch overheads and nothing else

    assert aicb(tmp_path).breakdown(prefill=[(200, 200)])["attention"] == pytest.approx(1000 * NS)


def test_one_token_behind_a_cached_prefix_is_a_decode(dense):
    model = aicb(dense)

    # By difference 2 x (200 ** 2 - 199 ** 2) at most; a decode with 200 tokens before it takes 2 x 220
    assert model.breakdown(prefill=[(1, 200)])["attention"] >= 2 * 220 * NS
    assert model.breakdown(prefill=[(1, 400)])["attention"] >= model.breakdown(decode=[401])["attention"]


def test_prompts_and_decodes_of_a_batch_share_the_rest(dense):
    found = aicb(dense).breakdown(prefill=[(199, 0)], decode=[101])

    # 199 is 99 % of the way from 100 ** 2 to 200 ** 2; the decode attends to 100 tokens
    assert found["attention"] == pytest.approx(2 * (39_700 + 110) * NS)
    assert found["mlp"] == pytest.approx(2 * 2000 * NS)          # that of 200 tokens


def test_drafted_tokens_count_for_the_rest_and_not_for_attention(tmp_path):
    for size in (1, 3):
        write(tmp_path, "decode", size, 100, layers(100 * size, 10 * size))
    write(tmp_path, "prefill", 1, 100, layers(1))

    # one sequence, 3 tokens, 100 before the step
    assert aicb(tmp_path).predict(decode=[103], tokens_per_decode=3) == pytest.approx(2 * (100 + 30) * NS)


def test_data_parallel_ranks_share_the_batch(dense, tmp_path):
    for path in list(dense.iterdir()):
        path.rename(path.with_name(path.name.replace("world_size1", "world_size4")))
    model = aicb(dense, ways={"data_parallel": 4})

    # 16 sequences, 4 on each rank; 400 prompt tokens, 100 and a quarter of the attention
    assert model.predict(decode=[101] * 16) == pytest.approx(2 * (140 + 50) * NS)
    assert model.predict(prefill=[(400, 0)]) == pytest.approx(2 * (40_000 + 1000) * NS)


def test_a_breakdown_adds_up(tmp_path):
    layout = {"world_size": 2, "tensor_parallel": 2, "expert_parallel": 2}
    for phase in ("prefill", "decode"):
        write(tmp_path, phase, 1, 100, moe_layers(100, 50, 200, 1000, comm=400), **layout)
    model = aicb(tmp_path, MIXTURE, ways={"tensor_parallel": 2, "expert_parallel": 2}, **NO_LATENCY)

    found = model.breakdown(decode=[101])

    # exchange: 1000 bytes at 200 bytes/ns; three all-reduces: 400 bytes x 2/2 at 200 bytes/ns each
    assert found == pytest.approx({"attention": 200 * NS, "mlp": 50 * NS, "moe": 200 * NS, "expert_exchange": 5 * NS,
                                   "all_reduce": 6 * NS, "pipeline": 0.0})
    assert sum(found.values()) == pytest.approx(model.predict(decode=[101]))


# ---- communication

@pytest.fixture
def mixture(tmp_path):
    """Nothing but an exchange of 16,000 bytes, and an attention of 100 in upstream's eyes."""
    for phase in ("prefill", "decode"):
        write(tmp_path, phase, 1, 100, moe_layers(0, 0, 0, 16_000), world_size=4, expert_parallel=4)
    return tmp_path


def exchange_ns(folder, collective=None, **parameters):
    model = aicb(folder, MIXTURE, collective, {"data_parallel": 4, "expert_parallel": 4}, **parameters)
    return [model.predict(prefill=[(400, 0)]) / NS, model.predict(decode=[101] * 4) / NS]


@pytest.mark.parametrize(("parameters", "expected"), [
    ({}, [160, 80]),                                            # 800 and 1600 Gbps: 100 and 200 bytes/ns
    ({"rdma_bandwidth_gbps": 400.0, "nvlink_bandwidth_gbps": 3200.0}, [320, 40]),
    ({"expert_exchange": "rdma"}, [160, 160]),
    ({"expert_exchange": "nvlink"}, [80, 80]),
])
def test_experts_exchange_over_the_link_of_the_phase(mixture, parameters, expected):
    assert exchange_ns(mixture, **parameters) == pytest.approx(expected)


def test_experts_may_exchange_through_the_collective_model(mixture):
    # two all-to-alls, of 1 and 2 parts in 3 (and a bit): RDMA 100 bytes/ns x 3/4 of the bytes, 1000 ns each
    found = exchange_ns(mixture, expert_exchange="collective", collective_latency_us=1.0)

    assert found == pytest.approx([2000 + 120, 2000 + 120])


@pytest.fixture
def tensor(tmp_path):
    """Two ranks; 4 all-reduces of 2000 bytes."""
    for phase in ("prefill", "decode"):
        write(tmp_path, phase, 1, 100, layers(0, 0, comm=2000), world_size=2, tensor_parallel=2)
    return tmp_path


def test_tensor_parallel_ranks_all_reduce(tensor):
    # ring volume 2 x 1/2 x 2000 bytes at 200 bytes/ns and 5 us, 4 of them
    assert aicb(tensor, ways={"tensor_parallel": 2}).predict(decode=[101]) == pytest.approx(4 * 5010 * NS)


def test_all_reduces_use_the_collective_model_that_is_given(tensor):
    ways = {"tensor_parallel": 2}
    collective = Busbw(Busbw.Parameters(), deploy(**ways))

    model = aicb(tensor, collective=collective, ways=ways)

    # one size in the tables, priced once for each phase
    assert model.provenance()["collective"] == {"exact": 2, "interpolated": 0, "extrapolated": 0}
    found = model.predict(decode=[101])
    assert found == pytest.approx(4 * collective.predict("tensor", "all_reduce", 2000)) and found > 0


def test_experts_that_are_split_by_width_end_in_an_all_reduce(tmp_path):
    for phase in ("prefill", "decode"):
        write(tmp_path, phase, 1, 100, moe_layers(0, 0, 0, 2000), world_size=2, tensor_parallel=2)

    model = aicb(tmp_path, MIXTURE, ways={"tensor_parallel": 2}, **NO_LATENCY)

    assert model.predict(decode=[101]) == pytest.approx(10 * NS)


# ---- pipeline

@pytest.fixture
def pipeline(tmp_path):
    """Two stages of a layer each: 100 + 300 ns."""
    rows = [(0, "attention", 100, 0), (1, "attention", 300, 0)]
    for phase in ("prefill", "decode"):
        write(tmp_path, phase, 1, 100, rows, world_size=2, pipeline_parallel=2)
    return tmp_path


def test_an_iteration_passes_all_stages_and_hands_over_between_them(pipeline):
    model = aicb(pipeline, ways={"pipeline_parallel": 2}, **NO_LATENCY)

    # one token of 64 x 2 bytes over RDMA, 100 bytes/ns
    assert model.predict(decode=[101]) == pytest.approx((400 + 1.28) * NS)
    assert model.breakdown(decode=[101])["pipeline"] == pytest.approx(1.28 * NS)


def test_stages_in_one_scale_up_domain_hand_over_by_nvlink(pipeline):
    model = Aicb(Aicb.Parameters(tables=str(pipeline), **NO_LATENCY), deploy(node=NODE, pipeline_parallel=2))

    assert model.breakdown(decode=[101])["pipeline"] == pytest.approx(0.64 * NS)     # 200 bytes/ns


def test_with_all_stages_busy_the_slowest_one_sets_the_pace(pipeline):
    model = aicb(pipeline, ways={"pipeline_parallel": 2}, pipeline="slowest_stage", **NO_LATENCY)

    assert model.stage_seconds(decode=[101]) == pytest.approx([100 * NS, 300 * NS])
    assert model.predict(decode=[101]) == pytest.approx(300 * NS)       # the last stage hands nothing over
    # unless its hand-over takes 1 ms
    slow = aicb(pipeline, ways={"pipeline_parallel": 2}, pipeline="slowest_stage", collective_latency_us=1000.0)
    assert slow.predict(decode=[101]) == pytest.approx(1_000_101.28 * NS)


# ---- upstream

def test_upstream_sums_lengths_and_flattens_prompts(dense):
    model = aicb(dense, variant="upstream")

    # 50 + 150 tokens: the tables of two sequences of 200; 1 us for the experts that two layers do not have
    assert model.predict(decode=[51, 151]) == pytest.approx((2 * (240 + 50) + 2000) * NS)
    # one prompt of 400 tokens
    assert model.predict(prefill=[(100, 0), (300, 0)]) == pytest.approx((2 * (160_000 + 4000) + 2000) * NS)


def test_upstream_counts_giga_in_binary_and_exchanges_over_rdma(mixture):
    # 16,000 bytes / (800 x 2**30 / 8 bytes/s), and 1 us each for the mlp and moe that the layers lack
    expected = 16_000 / (100 * 1.073741824) + 2000

    assert exchange_ns(mixture, variant="upstream") == pytest.approx([expected, expected])


def test_upstream_all_reduces_for_nothing(tensor):
    model = aicb(tensor, ways={"tensor_parallel": 2}, variant="upstream")

    assert model.breakdown(decode=[101])["all_reduce"] == 0.0


# ---- what cannot be

def test_phases_may_have_tables_of_different_sizes(tmp_path):
    write(tmp_path, "prefill", 1, 100, layers(1), world_size=16, expert_parallel=16)
    write(tmp_path, "decode", 1, 100, layers(2), world_size=48, expert_parallel=48)

    model = aicb(tmp_path, world_size=16, expert_parallel=16, decode_world_size=48, decode_expert_parallel=48)

    assert model.predict(decode=[101]) == pytest.approx(4 * NS)


def test_tables_of_another_model_are_refused(dense):
    with pytest.raises(InputErrors, match=r"latency.tables: M, .* seq 100: has 2 layers, model dense has 3"):
        aicb(dense, replace(DENSE, num_layers=3))


def test_both_phases_are_needed(dense):
    for path in dense.glob("*-decode.csv"):
        path.unlink()

    with pytest.raises(InputErrors, match="no table of M, world_size 1, tp 1, pp 1, ep 1, decode; it has none of this"):
        aicb(dense)


def test_it_needs_a_deployment(dense):
    with pytest.raises(ValueError, match=r"aicb needs \[model\] and \[hardware\]"):
        Aicb(Aicb.Parameters(tables=str(dense)), None)


def test_synthetic_tables_are_warned_of(tmp_path):
    header = "layer_id\tlayer_name\tcomp_time\tcomm_size\tsource\n"
    for phase in ("prefill", "decode"):
        path = tmp_path / f"vidur-M-world_size1-tp1-pp1-ep1-bs1-seq100-{phase}.csv"
        path.write_text(header + "0\tmlp\t1\t0\tsynthetic: roofline\n1\tmlp\t1\t0\tsynthetic: roofline\n")

    model = aicb(tmp_path)

    assert model.warnings() == ["aicb: tables are synthetic: roofline"]
    assert model.provenance()["sources"] == ["synthetic: roofline"]
