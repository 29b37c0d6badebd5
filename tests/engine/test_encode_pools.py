"""Pools that encode for others, through an experiment file, by timelines worked out by hand."""
import json

import pytest

import simulator

MS = 1_000_000
# A step takes 10 ms, an embedding 100 us, one on the link of an encode replica 10 us; 1 ms more until it has come.
EXPERIMENT = """
engine = {num_gpu_blocks = 5000, max_model_len = 20_000, async_scheduling = false}
workload = {type = "trace", path = "trace.csv"}
embeddings = {bandwidth_gb_per_s = 1.0, latency_us = 1000.0, bytes_per_embedding = 10_000.0}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
[[pools]]
name = "e"
role = "encode"
engine.encoder.us_per_embedding = 100
[[pools]]
name = "pd"
"""
APART = [{"name": "e", "role": "encode", "engine": {"encoder": {"us_per_embedding": 100}}},
         {"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}]


def run(folder, prompts, overrides=None, out=None, extra=()):
    """Serve (arrival in ms, prompt), two tokens of output each; `extra` : more columns, (name, a value for each)."""
    lines = [",".join(["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *(name for name, _ in extra)])]
    for i, (arrival_ms, prompt) in enumerate(prompts):
        tokens = sum(int(piece.split(":")[1]) for piece in prompt.split("/"))
        lines.append(",".join([f"{arrival_ms / 1000},{tokens},2,{prompt}", *(str(values[i]) for _, values in extra)]))
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    return simulator.run(folder / "experiment.toml", overrides, out=out)


def pools(*replicas, **engine):
    """Return the two pools with so many replicas; `engine` : of the encode pool."""
    encode, serve = replicas or (1, 1)
    encoder = {"us_per_embedding": 100} | engine.pop("encoder", {})
    return {"pools": [{"name": "e", "role": "encode", "replicas": encode, "engine": engine | {"encoder": encoder}},
                      {"name": "pd", "replicas": serve}]}


def ms(times_ns):
    """Return times in ms."""
    return (times_ns / MS).tolist()


def test_a_request_is_routed_when_its_last_item_has_come(tmp_path):
    # one batch of 200 embeddings, 20 ms; then the first item leaves until 21, the second until 22; 1 ms later they are
    # there. The request without items is served at once, and the other one beside it: steps at 0, 10 | 23, 33
    result = run(tmp_path, [(0, "t:50/a.img:100/u:5/b.img:100/v:5"), (0, "text:60")])

    jobs = result.encode_jobs
    assert jobs[["request", "item", "replica", "embeddings", "hit"]].tolist() == [(0, 0, 0, 100, 0), (0, 1, 0, 100, 0)]
    assert ms(jobs["queued_ns"]) == ms(jobs["start_ns"]) == [0, 0]
    assert ms(jobs["end_ns"]) == [20, 20]
    assert ms(jobs["sent_ns"]) == [20, 21]
    assert ms(jobs["transferred_ns"]) == [22, 23]
    assert ms(result.requests["enqueued_ns"]) == [23, 0]
    assert ms(result.requests["first_token_ns"]) == [33, 10]
    assert result.requests["encoded_tokens"].tolist() == [200, 0]
    assert result.iterations["encoder_tokens"].tolist() == [0, 0, 0, 0]     # nothing is encoded where prompts are


def test_m1_the_budget_of_a_batch_is_that_of_a_step(tmp_path):
    # 8192 embeddings: three items of 2304 leave 1280; the fourth is the second batch. 230.4 ms an item
    result = run(tmp_path, [(0, f"t{i}:50/i{i}.img:2304/u{i}:50") for i in range(4)], {"embeddings.latency_us": 0})

    assert ms(result.encode_jobs["start_ns"]) == [0, 0, 0, 691.2]
    assert ms(result.encode_jobs["end_ns"]) == [691.2, 691.2, 691.2, 921.6]
    assert ms(result.encode_jobs["transferred_ns"]) == pytest.approx([714.24, 737.28, 760.32, 944.64])
    assert result.summary["encode"]["by_pool"]["e"]["batches"] == 2


def test_an_item_waits_for_room_in_the_cache(tmp_path):
    # 150 places: the second item comes in when the batch of the first has ended, and drops it; so it is encoded again
    result = run(tmp_path, [(0, "a.img:100/:10"), (0, "b.img:100/:10"), (30, "c:9/a.img:100/:10")],
                 pools(encoder={"cache_tokens": 150}))

    assert ms(result.encode_jobs["start_ns"]) == [0, 10, 30]
    assert result.encode_jobs["hit"].tolist() == [0, 0, 0]


def test_a_cache_smaller_than_an_item_holds_one_and_says_so(tmp_path):
    result = run(tmp_path, [(0, "a.img:100/:10"), (0, "b.img:60/:10")], pools(encoder={"cache_tokens": 50}))

    assert ms(result.encode_jobs["start_ns"]) == [0, 10]
    assert result.summary["diagnosis"] == [
        'pool "e": the largest item has 100 embeddings, more than cache_tokens = 50, which counts as that many, as in '
        "vLLM"]


@pytest.mark.parametrize(("prompts", "hits", "ends"), [
    ([(0, "a.img:100/:10"), (30, "b:9/a.img:100/:10")], [0, 1], [10, 30]),     # it is in the cache of the replica
    ([(0, "a.img:100/:10"), (0, "b:9/a.img:100/:10")], [0, 1], [10, 10]),      # of one batch one computes it
    ([(0, "a.img:100/:10"), (5, "b:9/a.img:100/:10")], [0, 1], [10, 10]),      # it waits for the batch under way
    ([(0, "a.img:100/:10"), (30, "b:9/a.img:90/:10")], [0, 0], [10, 39])])     # no two sizes show the same
def test_what_was_encoded_is_not_encoded_again(prompts, hits, ends, tmp_path):
    result = run(tmp_path, prompts)

    assert result.encode_jobs["hit"].tolist() == hits
    assert ms(result.encode_jobs["end_ns"]) == ends
    assert ms(result.encode_jobs["transferred_ns"]) == pytest.approx(        # it is sent all the same
        [12, 13 if ends[1] == 10 else ends[1] + (2 if hits[1] else 1.9)])


def test_each_replica_has_a_cache_of_its_own_and_hashes_keep_items_together(tmp_path):
    prompts = [(30 * i, f"t{i}:5/a.img:100/u{i}:5") for i in range(6)]
    turns, hashed = (run(tmp_path, prompts, pools(3, 1) | {"cluster.encode.policy": policy})
                     for policy in ("round_robin", "consistent_hash"))

    assert turns.encode_jobs["replica"].tolist() == [0, 1, 2, 0, 1, 2]
    assert turns.encode_jobs["hit"].tolist() == [0, 0, 0, 1, 1, 1]
    assert hashed.encode_jobs["hit"].tolist() == [0, 1, 1, 1, 1, 1]
    assert len(set(hashed.encode_jobs["replica"].tolist())) == 1


def test_the_least_loaded_is_who_has_the_fewest_embeddings_to_come(tmp_path):
    # 500 at one of the two, 100 at the other; that has 200 then, and 300; until it has 600
    prompts = [(i, f"i{i}.img:{size}/:5") for i, size in enumerate([500, 100, 100, 100, 250, 50])]
    result = run(tmp_path, prompts, pools(2, 1) | {
        "cluster.encode": {"policy": "least_loaded", "metric": "tokens"}})

    first, *others = result.encode_jobs["replica"].tolist()
    assert others == [1 - first] * 4 + [first]


def test_a_batch_takes_no_more_items_than_sequences(tmp_path):
    prompts = [(0, f"i{i}.img:100/:5") for i in range(3)]
    result = run(tmp_path, prompts, pools(max_num_seqs=2))

    assert ms(result.encode_jobs["start_ns"]) == [0, 0, 20]


def test_the_host_takes_its_time_for_each_batch(tmp_path):
    result = run(tmp_path, [(0, "a.img:100/:10"), (50, "a.img:100/:10")], {"pools": [
        APART[0] | {"latency": {"host": {"iteration_us": 3000}}}, {"name": "pd"}]})

    assert ms(result.encode_jobs["end_ns"]) == [13, 53]
    assert result.summary["encode"]["replicas"][0]["busy_s"] == 0.016


def test_where_prompts_are_computed_items_take_places_and_no_budget(tmp_path):
    # 110 places: the second of two prompts of one step is computed up to its item, which finds no room beside the other
    prompts = [(0, "s:5/a.img:100/u:5"), (0, "t:7/b.img:100/v:5")]
    consumer = {"name": "pd", "engine": {"encoder": {"cache_tokens": 110}}}
    tight, free = (run(tmp_path, prompts, {"pools": [APART[0] | {"replicas": 2}, each]})
                   for each in (consumer, {"name": "pd"}))

    assert tight.iterations["prefill_tokens"].tolist()[:2] == [110 + 7, 105]
    assert free.iterations["prefill_tokens"].tolist()[0] == 222
    assert tight.iterations["encoder_tokens"].sum() == 0


def test_the_budget_of_a_step_is_for_what_it_encodes_itself(tmp_path):
    # 130 tokens and embeddings a step: after one item of 100 the next is cut off before its first 30 tokens, unless
    # others encode it
    prompts, encoder = [(0, "a.img:100/b.img:100/:10")], {"cache_tokens": 300}
    engine = {"encoder": encoder, "max_num_batched_tokens": 130, "max_num_seqs": 8}
    apart = run(tmp_path, prompts, {"pools": [APART[0], {"name": "pd", "engine": engine}]})
    itself = run(tmp_path, prompts, {"pools": [
        APART[0] | {"serves": "m"}, {"name": "m", "serves": "m"}, {"name": "pd", "engine": engine}]})

    assert apart.iterations["prefill_tokens"].tolist()[:2] == [130, 80]
    assert itself.iterations["prefill_tokens"].tolist()[:2] == [100, 110]
    assert itself.requests["encoded_tokens"].tolist() == [200]


def test_who_gives_up_takes_back_what_waits_and_is_not_routed(tmp_path):
    # the first is in the batch under way when its client gives up at 5 ms, the second in the queue, the third behind it
    prompts = [(0, "a.img:100/:5"), (1, "b.img:100/:5"), (2, "c.img:100/:5"), (40, "d.img:10/a.img:100/:5")]
    result = run(tmp_path, prompts, extra=[("deadline_s", [0.005, 0.005, 1, 1])])

    names = [simulator.domain.records.STATUS_NAMES[status] for status in result.requests["status"].tolist()]
    assert names == ["timed_out", "timed_out", "completed", "completed"]
    first, second, third, *_ = result.encode_jobs
    assert (first["end_ns"], first["sent_ns"], first["transferred_ns"]) == (10 * MS, -1, -1)
    assert (second["start_ns"], second["transferred_ns"]) == (-1, -1)
    assert (third["start_ns"], third["transferred_ns"]) == (10 * MS, 22 * MS)
    assert result.encode_jobs["hit"].tolist()[-1] == 1                # what was computed for the first is there
    assert result.requests["scheduled_ns"].tolist()[:2] == [-1, -1]
    assert result.requests["encoded_tokens"].tolist() == [100, 0, 100, 10]
    encode = result.summary["encode"]
    assert (encode["jobs"], encode["completed"], encode["hits"], encode["embeddings"]) == (5, 3, 1, 210)


def test_who_gives_up_while_embeddings_are_sent_is_not_routed(tmp_path):
    result = run(tmp_path, [(0, "a.img:100/:5"), (0.1, "t:5")], extra=[("deadline_s", [0.011, 9.0])])

    assert ms(result.encode_jobs["transferred_ns"]) == [12]
    assert result.requests["enqueued_ns"].tolist()[0] == -1
    assert result.summary["requests"]["timed_out"] == 1


@pytest.mark.parametrize("period_s", [0.0, 0.001])
def test_embeddings_that_are_sent_at_the_end_of_a_run_arrive_also_where_samples_are_taken(tmp_path, period_s):
    result = run(tmp_path, [(0, "a.img:100/:5")], {"output.replica_samples_s": period_s},
                 extra=[("deadline_s", [0.011])])

    assert ms(result.encode_jobs["transferred_ns"]) == [12]


def test_encode_prefill_decode(tmp_path):
    # the item has come at 12; the prompt is computed until 22, its KV (110 tokens of 1 kB, in whole blocks, at 1 GB/s)
    # moves, and the decode replica computes the last token again
    result = run(tmp_path, [(0, "t:5/a.img:100/u:5")], {"pools": APART, "kv_transfer": {
        "bandwidth_gb_per_s": 1.0, "kv_bytes_per_token": 1e3, "base_us": 0}})

    request = result.requests[0]
    assert request["prefill_done_ns"] == 22 * MS
    assert request["transfer_bytes"] == 112_000
    assert request["first_token_ns"] == 32 * MS + 112_000
    assert result.iterations["encoder_tokens"].tolist() == [0, 0, 0]


def test_requests_that_are_refused_have_nothing_encoded(tmp_path):
    # admission comes first
    result = run(tmp_path, [(0, "a.img:100/:5")], {"cluster.admission.policy": "reject_all"})

    assert len(result.encode_jobs) == 0
    assert result.summary["encode"]["ttft_share"] is None
    assert result.summary["requests"]["rejected"] == 1


def test_a_retried_request_has_its_items_already(tmp_path):
    # its replica fails at 15 ms, in its first step; the other one serves it
    result = run(tmp_path, [(0, "a.img:100/:5")], {
        "failures": [{"kind": "stop", "at_s": 0.015, "duration_s": 0.02, "which": 0}]} | pools(1, 2))

    assert result.requests["retries"].tolist() == [1]
    assert result.requests["encoded_tokens"].tolist() == [100]
    assert len(result.encode_jobs) == 1
    assert result.summary["requests"]["completed"] == 1


def test_each_model_has_its_encode_pool(tmp_path):
    prompts = [(0, "a.img:100/:5"), (0, "b.img:100/:5"), (0, "c.img:100/:5")]
    encode, serve = APART[0], {"name": "pd"}
    result = run(tmp_path, prompts, {"pools": [
        encode | {"serves": "m0"}, serve | {"serves": "m0"},
        encode | {"name": "e1", "serves": "m1", "engine": {"encoder": {"us_per_embedding": 200}}},
        serve | {"name": "pd1", "serves": "m1"}, serve | {"name": "pd2", "serves": "m2"}]},
        extra=[("model", ["m0", "m1", "m2"])])

    assert result.encode_jobs[["request", "replica"]].tolist() == [(0, 0), (1, 1)]
    assert ms(result.encode_jobs["end_ns"]) == [10, 20]
    assert result.requests["enqueued_ns"].tolist()[2] == 0            # nobody encodes for it, and no [engine.encoder]


def test_measured_requests_alone_count_in_the_summary(tmp_path):
    result = run(tmp_path, [(0, "a.img:100/:5"), (30, "b.img:50/c.img:50/:5")], {
        "workload.measure.warmup_requests": 1})

    assert result.summary["encode"]["jobs"] == 2
    assert result.summary["encode"]["wait_ms"]["max"] == pytest.approx(10 + 2 * 0.5 + 1)
    assert len(result.encode_jobs) == 3


def test_the_summary_tells_shares_and_costs(tmp_path):
    result = run(tmp_path, [(0, "a.img:100/:5")], {"pools": [
        APART[0] | {"cost_per_hour": 3.6}, {"name": "pd", "cost_per_hour": 36.0}]})

    encode = result.summary["encode"]
    assert encode["ttft_share"] == pytest.approx(12 / 22)
    assert encode["bytes"] == 1_000_000
    assert encode["by_pool"]["e"] == {
        "replicas": 1, "batches": 1, "busy_s": 0.01, "utilisation": pytest.approx(10 / 32), "cost_per_hour": 3.6,
        "cost": pytest.approx(3.6 * 0.032 / 3600)}
    assert result.summary["cost_by_node"][""]["cost_per_hour"] == pytest.approx(39.6)
    assert list(result.summary["by_pool"]) == ["pd"]


def test_what_is_written_is_what_was_in_memory(tmp_path):
    prompts = [(0, "a.img:100/b.img:50/:5"), (3, "c.img:30/:5"), (4, "text:5")]
    output = pools(2, 1) | {"output.chrome_trace": True}
    written = run(tmp_path, prompts, output, out=tmp_path / "out")

    kept = run(tmp_path, prompts, output)
    assert written.encode_jobs.tobytes() == kept.encode_jobs.tobytes()
    assert simulator.load_results(tmp_path / "out").encode_jobs.tolist() == kept.encode_jobs.tolist()
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    batches = [event for event in events if event.get("cat") == "encode" and event["tid"] == 0]
    assert [(event["pid"], event["ts"], event["dur"], event["args"]["items"]) for event in batches] == [
        (1, 0, 10_000, 1), (1, 10_000, 3_000, 1), (2, 0, 5_000, 1)]
    assert sum(event.get("cat") == "encode" and event["tid"] == 1 for event in events) == 3
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["replica 0", "encode replica 0", "encode replica 1"] or set(names) >= {
        "encode replica 0", "encode replica 1"}


def test_without_encode_pools_there_is_no_such_table(tmp_path):
    run(tmp_path, [(0, "a.img:100/:5")])
    experiment = EXPERIMENT.partition("[[pools]]")[0].replace("embeddings", "# embeddings")
    (tmp_path / "experiment.toml").write_text(experiment)

    result = simulator.run(tmp_path / "experiment.toml")
    with pytest.raises(LookupError, match='there is no pool with role = "encode"'):
        _ = result.encode_jobs
    assert "encode" not in result.summary


DRAWN = {"type": "synthetic", "num_requests": 60,
         "prompt_tokens": {"distribution": "uniform", "min": 5, "max": 60},
         "output_tokens": {"distribution": "uniform", "min": 1, "max": 12},
         "images": {"count": {"distribution": "uniform", "min": 0, "max": 3}, "rule": "tokens_per_image",
                    "tokens_per_image": 40, "distinct": 12}}
LOADS = {"open": {"arrival": {"process": "poisson", "rate_per_s": 80.0}},
         "closed": {"load": {"mode": "concurrency", "concurrency": 6}}}
CLUSTERS = {
    "whole": pools(2, 2),
    "apart": {"pools": APART, "kv_transfer": {"bandwidth_gb_per_s": 1.0, "kv_bytes_per_token": 1e3}},
    "ranks": {"pools": [APART[0], {"name": "pd", "topology": {"data_parallel": 2}}]},
    "queued": pools(1, 2) | {"cluster": {
        "gateway_queue": {"saturation": {"detector": "concurrency", "max_concurrency": 2}},
        "routing": {"policy": "least_loaded", "latency_s": 0.001}}}}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("load", ["open", "closed"])
def test_runs_of_iterations_at_once_change_nothing(load, cluster, tmp_path):
    experiment = EXPERIMENT.replace('{type = "trace", path = "trace.csv"}', "{type = 'synthetic', num_requests = 60}")
    (tmp_path / "experiment.toml").write_text(experiment)
    once, each = (simulator.run(tmp_path / "experiment.toml", CLUSTERS[cluster] | {
        "workload": DRAWN | LOADS[load], "engine.fast_forward": fast_forward, "engine.max_num_seqs": 4})
                  for fast_forward in (True, False))

    assert once.requests.tobytes() == each.requests.tobytes()
    assert once.encode_jobs.tobytes() == each.encode_jobs.tobytes()
    assert sorted(once.iterations.tolist()) == sorted(each.iterations.tolist())
    assert once.summary["requests"]["completed"] == 60
    assert once.encode_jobs["hit"].sum() > 0


ENCODERS = [{"name": f"e{region}", "role": "encode", "engine": {"encoder": {"us_per_embedding": 100}}}
            for region in "ab"]
IN_REGIONS = {"pools": [*ENCODERS, {"name": "pa"}, {"name": "pb"}], "cluster.regions": {
    "names": ["a", "b"], "pools": [["ea", "pa"], ["eb", "pb"]], "latency_ms": [[0, 20], [30, 0]], "column": "tenant",
    "spill_at": 1}}


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_items_are_encoded_in_the_region_that_serves_their_request(tmp_path, fast):
    # The third comes at 2, is encoded until 12, is there at 14; steps to 24 and 34. The second finds one request at
    # home, is at b at 21, encoded until 31, there at 33; steps to 44 and 54, which its client sees 30 later.
    prompts = [(0, "t:50"), (1, "t:50/x.img:100"), (2, "t:50/y.img:100")]
    result = run(tmp_path, prompts, IN_REGIONS | {"engine.fast_forward": fast}, extra=[("tenant", "aab")])

    assert result.encode_jobs["replica"].tolist() == [1, 1]
    assert ms(result.encode_jobs["start_ns"]) == [21, 2]
    assert ms(result.requests["enqueued_ns"]) == [0, 33, 14]
    assert ms(result.requests["first_token_ns"]) == [10, 74, 24]
    assert ms(result.requests["completed_ns"]) == [20, 84, 34]


def test_a_region_encodes_its_items_itself(tmp_path):
    table = IN_REGIONS["cluster.regions"] | {"pools": [["ea", "eb", "pa"], ["pb"]]}
    with pytest.raises(simulator.InputErrors, match='region "b" has pool "pb" and none of role "encode"'):
        run(tmp_path, [(0, "t:50")], IN_REGIONS | {"cluster.regions": table}, extra=[("tenant", "a")])
