"""SGLang with HiCache in experiments: times worked out by hand, what is refused, and what failures leave behind."""
from functools import partial

import pytest

import simulator
from simulator.assembly import assemble
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.results.memory import NO_SINK
from support.sglang import Log

# A token of KV takes 1 us to host memory and from there, 1 us from the store and to it; a batch of one request 5.01 ms,
# and 0.02 for each token of a prompt
EXPERIMENT = """
engine = {scheduler = "sglang", num_gpu_blocks = 3000, block_size = 1, max_model_len = 8000}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_context_token_us = 0}
workload = {type = "trace", path = "trace.csv"}
[kv_tiers]
protocol = "hicache"
kv_bytes_per_token = 1000.0
d2h_gb_per_s = 1.0
h2d_gb_per_s = 1.0
"""
STORE = {"kv_tiers.ratio": 0.4, "kv_tiers.secondary": [
    {"name": "l3", "read_gb_per_s": 1.0, "write_gb_per_s": 1.0, "base_us": 100.0}]}
A, B = "a:1000", "b:2500"           # A has to go for B


def run(folder, rows, changes=(), text=EXPERIMENT):
    """Serve requests of (seconds, prompt, output tokens), a prompt as in a trace."""
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt"]
    for at_s, prompt, output in rows:
        tokens = sum(int(piece.split(":")[1]) for piece in prompt.split("/"))
        lines.append(f"{at_s},{tokens},{output},{prompt}")
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    (folder / "experiment.toml").write_text(text)
    return simulator.run(folder / "experiment.toml", dict(changes))


def ttft_ms(result):
    requests = result.requests
    return [round((first - came) / 1e6, 6) for first, came in
            zip(requests["first_token_ns"].tolist(), requests["arrival_ns"].tolist())]


ONE_BATCH_MS = 5.0 + 0.01


# Each takes all of its prompt; A comes again when B has taken its place. All but its last token can be found.
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("write_policy", "b_ms", "a_ms", "loaded", "stored"), [
    ("write_through", 0, 0.999 + 0.02, 999, 3500),      # one layer, for no model is named: its load is not hidden
    ("write_through_selective", 0, 20, 0, 0),           # nothing came a second time
    # B waits for the copy of A, 1 ms; A for those of B, of which its last token, 1,500 in all, stays with its prompt
    ("write_back", 1.0, 2.5 + 0.999 + 0.02, 999, 3500)])
def test_what_host_memory_has_is_loaded(tmp_path, overlap, write_policy, b_ms, a_ms, loaded, stored):
    result = run(tmp_path, [(0, A, 1), (1, B, 1), (2, A, 1)], {
        "kv_tiers.write_policy": write_policy, "engine.disable_overlap_schedule": not overlap})

    assert ttft_ms(result) == pytest.approx([ONE_BATCH_MS + 20, ONE_BATCH_MS + 50 + b_ms, ONE_BATCH_MS + a_ms])
    assert result.requests["loaded_tokens"].tolist() == [0, 0, loaded]
    assert result.requests["cached_tokens"].tolist() == [0, 0, loaded]
    assert result.kv_tiers["stored_chunks"].tolist() == [stored]
    assert result.kv_tiers["hit_chunks"].tolist() == [loaded]


def test_layers_hide_most_of_a_load(tmp_path):
    text = EXPERIMENT.replace("kv_bytes_per_token = 1000.0\n", "").replace("= 1.0", "= 50.0")
    text = 'model.name = "llama-3.1-8b"\nhardware.name = "h100-sxm-80gb"\n' + text
    result = run(tmp_path, [(0, A, 1), (1, B, 1), (2, A, 1)], text=text)

    load_ms, compute_ms = 999 * 131_072 / 50e9 * 1e3, ONE_BATCH_MS + 0.02           # of 32 layers
    assert load_ms < compute_ms
    assert ttft_ms(result)[2] == pytest.approx(compute_ms + load_ms / 32, abs=2e-6)


def test_a_load_counts_as_tokens_that_need_room(tmp_path):
    # A's tokens are to be loaded and 100 computed, beside the 1,950 of C and its answer: too much for 3,000 at once.
    # When C has ended, its text is locked as long as the 99 tokens of the answer that are in KV are copied.
    rows = [(0, A, 1), (1, B, 1), (2, "c:1950", 100), (2, "a:1000/d:100", 1)]
    changes = {"engine.schedule_conservativeness": 1.5, "engine.chunked_prefill_size": 8000}
    later = run(tmp_path, rows, changes)
    assert later.requests["scheduled_ns"][3] == later.requests["completed_ns"][2] + 99_000
    sooner = run(tmp_path, rows, changes | {"engine.num_gpu_blocks": 3400})
    assert sooner.requests["scheduled_ns"][3] < sooner.requests["completed_ns"][2]


# A is in the store alone. 999 of its tokens are read in eight batches, 7 of 0.1 + 0.128 ms and one of 0.203.
@pytest.mark.parametrize(("keys", "expected_ms", "loaded"), [
    ({"prefetch_policy": "wait_complete"}, 1.799 + 0.999 + ONE_BATCH_MS + 0.02, 999),
    # it may be admitted at once: what would have come does not count
    ({"prefetch_policy": "best_effort"}, ONE_BATCH_MS + 20, 0),
    # after 1 ms there are four batches of 128 tokens
    ({"prefetch_policy": "timeout", "prefetch_timeout_base_s": 0.001, "prefetch_timeout_per_ki_token_s": 0.0},
     1.0 + 0.512 + ONE_BATCH_MS + 488 * 0.02, 512),
    # and after 0.5 + 999 / 1024 ms six
    ({"prefetch_policy": "timeout", "prefetch_timeout_base_s": 0.0005, "prefetch_timeout_per_ki_token_s": 0.001},
     0.5 + 999 / 1024 + 0.768 + ONE_BATCH_MS + 232 * 0.02, 768),
    ({"prefetch_policy": "timeout"}, 1.799 + 0.999 + ONE_BATCH_MS + 0.02, 999),
    ({"prefetch_threshold": 1000}, ONE_BATCH_MS + 20, 0)])
def test_what_the_store_has_is_prefetched(tmp_path, keys, expected_ms, loaded):
    result = run(tmp_path, [(0, A, 1), (1, B, 1), (2, A, 1)], STORE | {
        f"kv_tiers.{key}": value for key, value in keys.items()})

    assert ttft_ms(result)[2] == pytest.approx(expected_ms, abs=2e-6)
    assert result.requests["loaded_tokens"].tolist() == [0, 0, loaded]


def test_best_effort_has_what_came_while_others_were_served(tmp_path):
    # D runs alone, for 15.01 ms and three times 5.01. In the second pass A is asked for, in the third it is given room
    # and read, in the fourth it is there; when D is done, it is admitted.
    result = run(tmp_path, [(0, A, 1), (1, B, 1), (2, "d:500", 4), (2.001, A, 1)], STORE | {
        "kv_tiers.prefetch_policy": "best_effort", "kv_tiers.ratio": 0.6, "engine.max_running_requests": 1,
        "engine.disable_overlap_schedule": True})

    assert ttft_ms(result)[3] == pytest.approx(4 * ONE_BATCH_MS + 10 - 1 + 0.999 + ONE_BATCH_MS + 0.02)
    assert result.requests["loaded_tokens"][3] == 999


def test_who_waits_for_a_prefetch_is_passed_over(tmp_path):
    result = run(tmp_path, [(0, A, 1), (1, B, 1), (2, A, 1), (2.0001, "d:10", 1)], STORE)

    assert ttft_ms(result)[3] == pytest.approx(ONE_BATCH_MS + 0.2)
    # A has come while D was served
    assert ttft_ms(result)[2] == pytest.approx(0.1 + ONE_BATCH_MS + 0.2 + 0.999 + ONE_BATCH_MS + 0.02)


def test_replicas_share_a_store(tmp_path):
    changes = STORE | {"topology.replicas": 2, "cluster.routing.policy": "round_robin", "kv_tiers.secondary": [
        {"name": "l3", "scope": "cluster", "read_gb_per_s": 1.0, "write_gb_per_s": 1.0, "base_us": 100.0}]}
    result = run(tmp_path, [(0, A, 1), (1, A, 1)], changes)

    # one read of 999 tokens by the other replica
    assert ttft_ms(result)[1] == pytest.approx(0.1 + 0.999 + 0.999 + ONE_BATCH_MS + 0.02)
    # the prompt of A was written; that of the other is there
    assert result.kv_tiers[["level", "replica", "stores", "stored_chunks", "loads", "loaded_chunks"]].tolist()[-1] == (
        1, -1, 1, 1000, 1, 999)


def test_a_replica_that_fails_forgets_what_its_host_held(tmp_path):
    rows = [(0, A, 1), (1, B, 1), (3, A, 1)]
    stop = {"failures": [{"kind": "stop", "at_s": 2.0, "duration_s": 0.5, "which": 0}]}
    assert run(tmp_path, rows, stop).requests["loaded_tokens"].tolist() == [0, 0, 0]
    with_store = run(tmp_path, rows, STORE | stop)
    assert with_store.requests["loaded_tokens"].tolist() == [0, 0, 999]     # the store has it still


@pytest.mark.parametrize(("changes", "message"), [
    ({"engine.enable_prefix_caching": False}, r"engine\.enable_prefix_caching: .*expected true with .*, found false"),
    ({"kv_tiers.page_tokens": 64}, r"kv_tiers\.page_tokens: expected none, or engine\.block_size = 1.*found 64"),
    ({"kv_tiers.prefetch_policy": "best_effort"}, r"kv_tiers\.prefetch_policy: goes with \[\[kv_tiers\.secondary\]\]"),
    ({"kv_tiers.prefetch_threshold": 10}, r"kv_tiers\.prefetch_threshold: goes with \[\[kv_tiers\.secondary\]\]"),
    (STORE | {"kv_tiers.prefetch_timeout_base_s": 1.0}, r"kv_tiers\.prefetch_timeout_base_s: goes with .*timeout"),
    (STORE | {"kv_tiers.write_policy": "write_back"}, r"kv_tiers\.write_policy: expected another with .*write_back"),
    (STORE | {"kv_tiers.secondary": [{"name": "x"}, {"name": "y"}]}, r"kv_tiers\.secondary: expected one, found 2"),
    ({"kv_tiers.ratio": 0.0001}, r"kv_tiers\.ratio: 0\.0001 times the blocks hold 0 chunks"),
    ({"kv_tiers": {"protocol": "vllm_offload", "cpu_gib": 1.0}},
     r'found "vllm_offload": it goes with scheduler "vllm"'),
    ({"topology.replicas": 2, "cluster.routing.policy": "dynamo"}, r"kv_tiers\.protocol: expected another.*hicache"),
])
def test_what_does_not_go_together_is_refused(tmp_path, changes, message):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, [(0, A, 1)], changes)


def test_with_roles_it_is_refused(tmp_path):
    roles = {"pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}],
             "kv_transfer": {"protocol": "sglang", "bandwidth_gb_per_s": 40.0, "kv_bytes_per_token": 1000.0}}
    with pytest.raises(InputErrors, match=r"pools\[0\]\.kv_tiers: expected none .*HiCache"):
        run(tmp_path, [(0, A, 1)], roles)


def test_its_steps_can_be_looked_at(tmp_path, monkeypatch):
    run(tmp_path, [(0, A, 2)])
    log, hooks = Log(100), assemble.Hooks
    monkeypatch.setattr(assemble, "Hooks", partial(hooks, observer=log))
    cluster = assemble.build(assemble.prepare(load_experiment(tmp_path / "experiment.toml")), NO_SINK)
    cluster.replicas[0].scheduler.transfers.keep_log()
    cluster.run()

    assert [step["scheduled"] for step in log.steps] == [[(0, 1000)], [(0, 1)]]
    # of 3,000; the first batch executes, and its prompt is not in the tree yet
    assert log.steps[-1]["policy"]["tokens"] == (1999, 0, 0)
