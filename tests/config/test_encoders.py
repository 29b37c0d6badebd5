"""What an experiment with pools that encode for others must say, and what it may not."""
import pytest

import simulator
from simulator.errors import InputErrors

ENCODE = "{name = 'e', role = 'encode', engine.encoder.us_per_embedding = 10.0%s}"
SERVE = "{name = 'pd'%s}"
MOVES = "embeddings = {bandwidth_gb_per_s = 25.0, bytes_per_embedding = 8192.0}"
WHY = "an encode pool has encoders alone: no tokens, no KV, and no"


def pools(encode="", serve=""):
    """Return the two pools; of each more keys."""
    return f"pools = [{ENCODE % encode}, {SERVE % serve}]"


def test_pools_that_encode_stand_beside_those_that_serve(load):
    experiment = load(pools(), MOVES)

    assert [pool.name for pool in experiment.all_pools()] == ["pd"]
    assert [pool.name for pool in experiment.encode_pools()] == ["e"]
    assert experiment.embeddings.latency_us == 400.0


@pytest.mark.parametrize("said", [
    ", replicas = 3, cost_per_hour = 2.0", ", engine.max_num_seqs = 8", ", engine.max_num_batched_tokens = 4096",
    ", engine.encoder.cache_tokens = 100, engine.encoder.max_num_encoder_input_tokens = 50", ", topology.replicas = 2",
    ", latency.host.iteration_us = 500.0"])
def test_keys_that_act_are_taken(load, said):
    assert len(load(pools(said), MOVES).encode_pools()) == 1


@pytest.mark.parametrize(("encode", "message"), [
    (", nodes_per_unit = 2", "nodes_per_unit: expected none, found 2: encode pools stay as they are"),
    (", max_replicas = 2", "max_replicas: expected none, found 2: encode pools stay as they are"),
    (", replicas = 0", "replicas: expected at least 1, found 0: encode pools stay as they are"),
    (", engine.block_size = 32",
     f"engine.block_size: expected as in [engine], 16, found 32: {WHY} block_size that would act here"),
    (", engine.policy = 'priority'",
     f'engine.policy: expected as in [engine], "fcfs", found "priority": {WHY} policy that would act here'),
    (", engine.lora = {max_loras = 2}",
     f"engine.lora: expected as in [engine], none, found a table: {WHY} lora that would act here"),
    (", engine.scheduler = 'blis'",
     'engine.scheduler: expected "vllm", found "blis": encoders of their own are those of vLLM'),
    (", engine.encoder.disable_chunked_mm_input = true",
     f"engine.encoder.disable_chunked_mm_input: expected false, found true: {WHY} chunks of prompts; give it to the "
     "pools that compute these"),
    (", topology.tensor_parallel = 2",
     f"topology.tensor_parallel: expected as in [topology], 1, found 2: {WHY} tensor_parallel that would act here"),
    (", latency.base_us = 3.0",
     f"latency.base_us: expected as in [latency], 5000.0, found 3.0: {WHY} base_us that would act here"),
    (", latency.host.completion_us = 3.0",
     f"latency.host.completion_us: expected as in [latency.host], 0.0, found 3.0: {WHY} completion_us that would act "
     "here"),
    (", hardware.name = 'h100-sxm-80gb'",
     f"hardware: expected as in [hardware], or none: {WHY} hardware that would act here"),
    (", model.name = 'llama-3.1-8b'",      # bytes_per_embedding is given: it tells nothing
     f"model: expected as in [model], or none: {WHY} model that would act here")])
def test_keys_that_would_not_act_are_refused(load, faults, encode, message):
    if "us_per_embedding" not in encode and "scheduler" in encode:
        pool = "{name = 'e', role = 'encode', engine.scheduler = 'blis'}"
        assert faults(load, f"pools = [{pool}, {SERVE % ''}]", MOVES) == [f"--set: pools[0].{message}"]
    else:
        assert faults(load, pools(encode), MOVES) == [f"--set: pools[0].{message}"]


@pytest.mark.parametrize(("said", "expected"), [
    ([pools()], ['a.toml: embeddings: missing table; pool "e" with role = "encode" needs it for the transfer of '
                 "embeddings to the replicas of prompts: for instance [embeddings] bandwidth_gb_per_s = 25.0"]),
    ([f"pools = [{ENCODE % ''}]", MOVES],
     ['--set: pools[0].role: "encode" takes a pool of another role that serves the same requests: nobody would compute '
      "the prompts"]),
    ([pools(", serves = 'x'"), MOVES],
     ['--set: pools[0].role: "encode" takes a pool of another role that serves the same requests: nobody would compute '
      "the prompts"]),
    ([MOVES], ['--set: embeddings: nothing would be moved: there is no pool with role = "encode"']),
    (["cluster.encode.policy = 'random'"],
     ['--set: cluster.encode: there would be nothing to choose: there is no pool with role = "encode"']),
    (["pools = [{name = 'e', role = 'encode'}, {name = 'pd'}]", MOVES],
     ["--set: pools[0].engine.encoder: expected us_per_embedding or tokens_per_s: it says how long encoders take"]),
    ([f"pools = [{ENCODE % ''}, {{name = 'e'}}]", MOVES], ['--set: pools[0].name: two pools are named "e"']),
    ([pools(), MOVES, "cluster.encode.policy = 'cache_aware'"],
     ['--set: cluster.encode.policy: expected "round_robin", "random", "least_loaded", "power_of_two" or '
      '"consistent_hash", found "cache_aware": encode replicas have no KV, no prompts and no sessions that it could go '
      "by"]),
    ([pools(), MOVES, "cluster.encode = {policy = 'least_loaded', metric = 'kv'}"],
     ['--set: cluster.encode.metric: expected "requests", items that have not come yet, or "tokens", their embeddings, '
      'found "kv": encode replicas report nothing else']),
    ([pools(), MOVES, "cluster.encode = {policy = 'consistent_hash', key = 'tenant'}"],
     ['--set: cluster.encode.key: expected its default, "session", found "tenant": items are told apart by what they '
      "show, and by nothing else"]),
    ([pools(serve=", engine.encoder.tokens_per_s = 5.0"), MOVES],
     ['--set: pools[1].engine.encoder.tokens_per_s: expected none, found 5.0: pool "e" encodes for this one; give it '
      "there, in [pools.engine.encoder] below it, and not in [engine.encoder]"]),
    ([pools(serve=", engine.encoder.max_num_encoder_input_tokens = 5"), MOVES],
     ['--set: pools[1].engine.encoder.max_num_encoder_input_tokens: expected none, found 5: pool "e" encodes for this '
      "one; give it there, in [pools.engine.encoder] below it, and not in [engine.encoder]"]),
    ([pools(), MOVES, "failures = [{kind = 'stop', at_s = 1.0, pool = 'e'}]"],
     ['--set: failures[0].pool: replicas of "e", an encode pool, do not fail: failures with items at a replica are not '
      "supported"]),
    ([pools(", infer_type = 'neutral'"), MOVES],
     ['--set: pools[0]: role = "encode" and infer_type = "neutral" say different things of pool "e": give one of '
      "them"]),
    (["embeddings = {latency_us = 1.0}", pools()],
     ["--set: embeddings.bandwidth_gb_per_s: missing; expected a number > 0 and <= 1000000000 "
      "(rate of the link of an encode replica, as transfers see it)"])])
def test_what_does_not_go_together_is_refused(load, faults, said, expected):
    assert faults(load, *said) == expected


def test_faults_of_other_pools_have_their_own_numbers(load, faults):
    assert faults(load, pools(serve=", engine.max_num_seqs = 9000"), MOVES) == [
        "--set: pools[1].engine.max_num_batched_tokens: expected at least max_num_seqs = 9000, found 8192"]


def test_a_workload_without_images_is_refused(load, tmp_path):
    experiment = load(pools(), MOVES)
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,1\n")

    with pytest.raises(InputErrors, match=r"pools\.e\.role: expected no encode pool: no prompt of this"):
        simulator.run(experiment)


def test_an_embedding_is_as_large_as_the_model_is_wide(load, faults, tmp_path):
    rate = "embeddings = {bandwidth_gb_per_s = 1.0, latency_us = 0.0}"
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,100,1,a.img:100\n")

    known = simulator.run(load(pools(), rate, "model.name = 'llama-3.1-8b'"))
    assert known.summary["encode"]["bytes"] == 100 * 4096 * 2
    assert known.encode_jobs["transferred_ns"][0] - known.encode_jobs["end_ns"][0] == 100 * 4096 * 2
    with pytest.raises(InputErrors, match=r"embeddings.bytes_per_embedding: missing; expected a number, or \[model\]"):
        simulator.run(load(pools(), rate))
