"""Single requests worked by hand to the nanosecond through three features or more.

An iteration takes 5 ms, 0.01 a sequence, 0.02 a prompt token, 0.003 a decode token and 0.0005 a token of context: 100
prompt tokens take 7.01 ms. An adapter of 100 MB takes 10 ms from the disk and 2 to the accelerator; with an adapter in
it an iteration takes 1.5 times as long and 0.1 more: 10.615 with that prompt. A grammar is compiled in 30 ms. KV has
100 kB a token between accelerator and host, 40 GB/s, 0.05 ms before the first byte; 131,072 B a token from replica to
replica, 40 GB/s behind 0.4 ms. All numbers below are in ms.
"""
import pytest

import simulator

PRICES = """
[workload]
type = "trace"
path = "trace.csv"
time_origin = "trace"
[latency]
backend = "linear"
base_us = 5000.0
per_sequence_us = 10.0
per_prefill_token_us = 20.0
per_decode_token_us = 3.0
per_context_token_us = 0.5
[output]
token_times = true
"""
ENGINE = {"max_model_len": 4096, "num_gpu_blocks": 1000, "async_scheduling": False}
ADAPTERS = {"max_loras": 1, "adapter_mb": 100.0, "h2d_gb_per_s": 50.0, "disk_gb_per_s": 10.0, "step_factor": 1.5,
            "per_adapter_us": 100.0}
GRAMMARS = {"compile_ms": 30.0, "mask_us": 50.0}
DRAFTS = {"num_tokens": 3, "acceptance": [2]}
HOST = {"cpu_gib": 10.0, "kv_bytes_per_token": 100_000.0, "h2d_gb_per_s": 40.0, "d2h_gb_per_s": 40.0,
        "first_byte_us": 50.0}
APART = [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}]
LINK = {"base_us": 400.0, "bandwidth_gb_per_s": 40.0, "kv_bytes_per_token": 131_072.0}
TWO = {"replicas": 2}
TO_ZERO = {"policy": "queue", "interval_s": 100.0, "min_replicas": 0, "max_replicas": 1,
           "provisioning_delay": {"mean_s": 3.0}, "loading_delay": {"mean_s": 4.0}, "warm_up_delay": {"mean_s": 1.0},
           "zero": {"poll_s": 1.0, "cooldown_s": 2.0}}
FROM_A_TO_B = {"names": ["a", "b"], "replicas": [0, 1], "latency_ms": [[0.0, 7.0], [9.0, 0.0]], "column": "tenant"}


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def serve(tmp_path, request):
    """Serve rows of (arrival in ms, prompt, output tokens, more columns); return the Result."""
    def serve_it(rows, columns=(), engine=None, **tables):
        names = ["arrived_at", "num_prefill_tokens", "num_decode_tokens", "prompt", *columns]
        lines = [",".join(names)]
        for arrival_ms, prompt, outputs, *more in rows:
            tokens = sum(int(piece.split(":")[1]) for piece in prompt.split("/"))
            lines.append(",".join(map(str, [arrival_ms / 1000, tokens, outputs, prompt, *more])))
        (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
        (tmp_path / "a.toml").write_text(PRICES)
        of_vllm = {} if engine and "scheduler" in engine else ENGINE
        return simulator.run(
            tmp_path / "a.toml", {"engine": of_vllm | {"fast_forward": request.param} | (engine or {})} | tables)

    return serve_it


def ms(result, *names, request=0):
    """Return times of a request in ms."""
    return [result.requests[f"{name}_ns"][request] / 1e6 for name in names]


def tokens_ms(result, request=0):
    offsets, times_ns = result.token_times
    return [time_ns / 1e6 for time_ns in times_ns[offsets[request]:offsets[request + 1]].tolist()]


def stop(at_ms, **more):
    return {"kind": "stop", "which": 0, "at_s": at_ms / 1000, "duration_s": 10.0} | more


# ---- KV beyond the accelerator


def test_a_prompt_in_chunks_under_an_adapter_comes_back_from_the_host(serve):
    # 512 tokens take 15.25, so 22.975 with the adapter, and the first chunk 12 more; the decode (5.013 + 0.5125) x 1.5
    # + 0.1. The accelerator's cache is emptied at 200. At 300: 64 blocks take 0.05 + 2.56; one token is computed again,
    # 5.03 x 1.5 + 0.1; the adapter is there.
    result = serve([(0, "x:1024", 2, "l"), (300, "x:1024", 2, "l")], ["adapter"],
                   {"lora": ADAPTERS, "max_num_batched_tokens": 512}, kv_tiers=HOST,
                   failures=[{"kind": "cache", "which": 0, "at_s": 0.2}])

    assert tokens_ms(result) == [57.95, 66.33825]
    assert tokens_ms(result, 1) == [310.255, 318.64325]
    assert result.requests["loaded_tokens"].tolist() == [0, 1024]


def test_a_load_of_lmcache_is_in_the_iteration_and_is_not_slowed_by_an_adapter(serve):
    # 30 to compile; 25.49 x 1.5 + 0.1 and 12 to load the adapter. At 500 the grammar is there: 100 tokens 10.615, and
    # 1,024 tokens from the host 2.61.
    result = serve([(0, "x:1024", 2, "l", "g"), (500, "x:1024/y:100", 2, "l", "g")], ["adapter", "grammar"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS}, kv_tiers=HOST | {"protocol": "lmcache"},
                   failures=[{"kind": "cache", "which": 0, "at_s": 0.2}])

    assert ms(result, "scheduled", "first_token") == [30, 80.335]
    assert ms(result, "scheduled", "first_token", request=1) == [500, 513.225]
    assert result.requests["loaded_tokens"].tolist() == [0, 1024]


def test_a_replica_reads_a_store_that_another_one_wrote(serve):
    # 1,024 tokens take 0.1 + 10.24 into the host, 2.56 on; 12 for the adapter, which no store holds, and 7.645.
    levels = [{"name": "s", "scope": "cluster", "read_gb_per_s": 10.0, "write_gb_per_s": 10.0, "base_us": 100.0}]
    result = serve([(0, "x:1024", 2, "l"), (300, "x:1024", 2, "l")], ["adapter"], {"lora": ADAPTERS}, topology=TWO,
                   kv_tiers=HOST | {"first_byte_us": 0.0, "secondary": levels})

    assert result.requests[["replica", "loaded_tokens"]].tolist() == [(0, 0), (1, 1024)]
    assert tokens_ms(result, 1) == [332.545, 340.93325]


def test_a_load_within_the_iteration_comes_before_drafts_and_is_not_slowed_by_an_adapter(serve):
    # 2.61 to load, 10.615; verifications of 5.022 and 0.0005 x (1128, 1131, 1134), x 1.5 + 0.1.
    result = serve([(0, "x:1024", 1, "l"), (300, "x:1024/y:100", 8, "l")], ["adapter"],
                   {"lora": ADAPTERS, "speculative": DRAFTS}, kv_tiers=HOST | {"sync_load_budget_bytes": 1_000_000_000},
                   failures=[{"kind": "cache", "which": 0, "at_s": 0.2}])

    assert tokens_ms(result, 1) == [313.225, *[321.704] * 3, *[330.18525] * 3, 338.66875]


def test_a_victim_reloads_its_prompt_and_computes_its_outputs_again(serve):
    # 15 blocks. Budget 128: r0 with 96 and r1 with 32 tokens until 7.58; 64 more beside a decode until 13.9315. In
    # iteration k the KV of r0 is 95 + k tokens, that of r1 94 + k: r0 takes the last block in iteration 18, r1 lacks
    # one in 19 and is preempted with 17 tokens out. r0 has its last token at the end of iteration 40. Six blocks take
    # 0.05 + 0.24, and 17 outputs are computed in 5.35.
    ends = [7.58, 13.9315]
    for k in range(3, 41):
        context = 189 + 2 * k if k <= 18 else 95 + k
        ends.append(ends[-1] + (5.026 if k <= 18 else 5.013) + 0.0005 * context)
    after = [ends[-1] + 0.29 + 5.35]
    for context in range(114, 136):
        after.append(after[-1] + 5.013 + 0.0005 * context)
    result = serve([(0, "x:96", 40), (0, "y:96", 40)], engine={
        "max_model_len": 200, "num_gpu_blocks": 16, "max_num_batched_tokens": 128, "enable_prefix_caching": False},
        kv_tiers=HOST)

    assert tokens_ms(result) == [round(each, 6) for each in ends]
    assert tokens_ms(result, 1) == [round(each, 6) for each in ends[1:18] + after]
    assert result.requests[["preemptions", "loaded_tokens", "stored_tokens"]].tolist() == [(0, 0, 96), (1, 96, 96)]


# ---- replicas that go and come


@pytest.mark.parametrize("gone", ["scaled", "restarted"])
def test_a_process_that_ended_comes_back_without_adapters_grammars_and_host_memory(serve, gone):
    # Idle for 2 s, the replica is removed; the request of 10,250 is seen at 11,000, 3,000 + 4,000 + 1,000 to start. Or
    # it restarts at 1,000. Both times 30 to compile, 10.615, and 12 for the adapter.
    how = {"autoscaling": TO_ZERO} if gone == "scaled" else {
        "restarts": [{"at_s": 1.0, "loading_delay": {"mean_s": 4.0}}]}
    result = serve([(0, "x:100", 2, "l", "g"), (10250, "x:100", 2, "l", "g")], ["adapter", "grammar"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS}, kv_tiers=HOST, cluster={"gateway_queue": {}},
                   **how)

    begun = 19_000 if gone == "scaled" else 10_250
    assert ms(result, "first_token", "completed") == [52.615, 60.31025]
    assert ms(result, "first_token", "completed", request=1) == [begun + 52.615, begun + 60.31025]
    assert result.requests[["cached_tokens", "loaded_tokens"]].tolist() == [(0, 0), (0, 0)]


def test_a_cold_start_delays_the_queue_and_the_host_takes_its_times(serve):
    # As above, up at 19,000; 1.5 to the queue, 7.01 and 5.0635 in the engine, 0.2 to a token, 0.7 to the end.
    result = serve([(0, "y:10", 1), (10250, "x:100", 2)], autoscaling=TO_ZERO, cluster={"gateway_queue": {}},
                   latency={"host": {"queue_base_us": 1500.0, "output_token_us": 200.0, "completion_us": 700.0}})

    assert ms(result, "enqueued", "scheduled", "first_token", "completed", request=1) == [
        19_001.5, 19_001.5, 19_008.71, 19_014.4735]


def test_a_retry_waits_at_client_and_host_and_goes_on_with_its_drafts(serve):
    # 1.5 to the queue, 7.01; a verification has four tokens, 5.022 and 0.0005 x (104, 107), and brings three. The third
    # is lost at 21; 50 of backoff and 1.5 again; 107 tokens take 7.15; verifications end with 111 and 114 tokens.
    result = serve([(0, "x:100", 12)], engine={"speculative": DRAFTS}, topology=TWO, failures=[stop(21)],
                   cluster={"retry": {"backoff_s": 0.05, "jitter": 0.0}},
                   latency={"host": {"queue_base_us": 1500.0}})

    assert tokens_ms(result) == [8.51, *[13.584] * 3, *[18.6595] * 3, 79.65, *[84.7275] * 3, 89.8065]
    assert ms(result, "dispatched", "downtime") == [71, 50]


def test_another_replica_compiles_encodes_and_loads_anew_for_a_retry(serve):
    # 30 to compile; 250 tokens take 10.01 x 1.5 + 0.1, the adapter 12 and 200 embeddings 2. The third token comes at
    # 74.73125. At 75 all begins again at the other replica, with 253 tokens: 30, 15.205, 12 and 2.
    result = serve([(0, "t:50/a.img:200", 5, "l", "g")], ["adapter", "grammar"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS, "encoder": {"us_per_embedding": 10.0}},
                   topology=TWO, failures=[stop(75)])

    assert tokens_ms(result) == [59.115, 66.92275, 74.73125, 134.205, 142.015]
    assert result.requests[["encoded_tokens", "retries"]].tolist() == [(400, 1)]


def test_tensorrt_llm_computes_chunks_again_elsewhere(serve):
    # 1.5 to the queue; chunks of 256, 256 and 88 tokens take 10.13, 10.13 and 6.77; a decode 5.013 + 0.3005. At 35
    # the second is lost: 1.5, and 602 tokens in chunks of 10.13, 10.13 and 6.81; 5.013 + 0.3015.
    result = serve([(0, "x:600", 4)], engine={
        "scheduler": "tensorrt_llm", "max_model_len": 4096, "num_gpu_blocks": 1000, "enable_chunked_context": True,
        "max_num_tokens": 256}, topology=TWO, failures=[stop(35)], latency={"host": {"queue_base_us": 1500.0}})

    assert tokens_ms(result) == [28.53, 33.8435, 63.57, 68.8845]


def test_sglang_compiles_a_grammar_anew_for_a_retry(serve):
    # 30 and 7.01; seven decodes, of 5.013 and 0.0005 x (101 to 107), the last one until 72.465. At 75: 30, 108 tokens
    # in 7.17, and a decode of 5.013 + 0.0545.
    result = serve([(0, "x:100", 10, "g")], ["grammar"], {
        "scheduler": "sglang", "max_model_len": 4096, "num_gpu_blocks": 1000, "block_size": 16,
        "structured_outputs": GRAMMARS}, topology=TWO, failures=[stop(75)])

    assert tokens_ms(result)[6:] == [67.3985, 72.465, 112.17, 117.2375]


def test_another_prefill_replica_compiles_loads_and_computes_all_chunks(serve):
    # Lost at 60, in the second chunk. 30, 12 and chunks of 15.295, 15.295 and 10.255; 30 at the decode replica, 38
    # blocks in 2.392294, 12 and 7.645.
    result = serve([(0, "x:600", 3, "l", "g")], ["adapter", "grammar"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS, "max_num_batched_tokens": 256},
                   pools=[APART[0] | TWO, APART[1]], kv_transfer=LINK | {"protocol": "nixl"}, failures=[stop(60)])

    assert ms(result, "prefill_done", "transfer_start", "transfer_end") == [142.845, 172.845, 175.237294]
    assert tokens_ms(result)[0] == 194.882294


MOVES = {"policy": "rebalance", "interval_s": 0.1, "least_difference": 0.001, "kv_bytes_per_token": 100_000.0,
         "bandwidth_gb_per_s": 1.6, "last_stage_blocks": 2}


def test_a_move_copies_kv_and_loads_the_adapter_and_encodes_nothing_again(serve):
    # 0.5 for 50 embeddings, 10.615 and 12. In decode k 100 + k tokens are read. At 100 six full blocks begin to move,
    # until 106; the decode then executing ends at 107.804, the seventh block takes 1; 12 for the adapter, and 7.7035.
    result = serve([(0, "t:50/a.img:50", 14, "l"), (0, "y:10", 1, "")], ["adapter"],
                   {"lora": ADAPTERS, "encoder": {"us_per_embedding": 10.0}}, topology=TWO,
                   cluster={"rescheduling": MOVES | {"mode": "live"}})

    found = tokens_ms(result)
    assert (found[0], found[9:]) == (23.115, [92.39925, 100.10125, 107.804, 128.5075, 136.21175])
    assert result.requests[["encoded_tokens", "migrations"]].tolist()[0] == (50, 1)
    assert ms(result, "downtime") == [1]


def test_a_move_without_kv_compiles_loads_and_computes_anew(serve):
    # 30, 12 and 10.615. The decode that is executing at 100 ends at 106.4975, with the eighth token; 30, 12 and 108
    # tokens in 10.855; 7.70125, 7.702 and 7.70275.
    result = serve([(0, "x:100", 12, "l", "g"), (0, "y:10", 1, "", "")], ["adapter", "grammar"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS}, topology=TWO,
                   cluster={"rescheduling": MOVES | {"mode": "recompute"}})

    assert tokens_ms(result)[7:] == [106.4975, 159.3525, 167.05375, 174.75575, 182.4585]


# ---- prompt and output apart


def test_both_replicas_compile_a_grammar_and_only_missing_blocks_move(serve):
    # 30 to compile, chunks of 10.13, 10.13 and 7.01; 30 at the decode replica, which has the request now. 39 blocks:
    # 0.4 + 2.044723; 5.03 for the last token. At 500 both know the grammar and 512 tokens: 7.01, seven blocks in
    # 0.767002, 5.03.
    result = serve([(0, "s:512/a:100", 3, "g"), (500, "s:512/b:100", 3, "g")], ["grammar"],
                   {"max_num_batched_tokens": 256, "structured_outputs": GRAMMARS}, pools=APART,
                   kv_transfer=LINK | {"protocol": "nixl"})
    times = ["scheduled", "prefill_done", "transfer_start", "transfer_end", "first_token"]

    assert ms(result, *times) == [30, 57.27, 87.27, 89.714723, 94.744723]
    assert ms(result, *times, request=1) == [500, 507.01, 507.01, 507.777002, 512.807002]
    assert result.requests["transfer_bytes"].tolist() == [81_788_928, 14_680_064]


def test_both_replicas_load_an_adapter_and_hear_late_of_each_other(serve):
    # 12 and chunks of 15.295, 15.295 and 10.255; 0.3 until the prefill replica knows of the room, 38 blocks in
    # 2.392294, 0.3 until the decode replica knows of them; 12 and 7.645; 8.07025.
    result = serve([(0, "x:600", 2, "l")], ["adapter"], {"max_num_batched_tokens": 256, "lora": ADAPTERS}, pools=APART,
                   kv_transfer=LINK | {"protocol": "nixl_push", "notice_us": 300.0})

    assert ms(result, "prefill_done", "transfer_start", "transfer_end") == [52.845, 53.145, 55.537294]
    assert tokens_ms(result) == [75.482294, 83.552544]


def test_an_image_is_encoded_and_its_prompt_computed_and_continued_at_three_replicas(serve):
    # 100 embeddings take 10, their 1 MB 1 and 1 more; 160 tokens 8.21 x 1.5 + 0.1 and 12 for the adapter; ten blocks
    # 0.924288; 12 and 7.645.
    encode = {"name": "e", "role": "encode", "engine": {"encoder": {"us_per_embedding": 100.0}}}
    result = serve([(0, "t:50/a.img:100/u:10", 3, "l")], ["adapter"], {"lora": ADAPTERS}, pools=[encode, *APART],
                   embeddings={"bandwidth_gb_per_s": 1.0, "latency_us": 1000.0, "bytes_per_embedding": 10_000},
                   kv_transfer=LINK | {"protocol": "mooncake"})

    assert ms(result, "enqueued", "prefill_done", "transfer_end", "first_token") == [12, 36.415, 37.339288, 56.984288]


def test_no_prompt_is_computed_before_the_decode_replica_has_room_for_it(serve):
    # Chunks of 15.25 and 10.77; the second moves in 0.4 + 0.943718, with the first token. 5.4135 and 5.414 for the
    # others. Beside 50 blocks of r0 there is no room for 800 tokens and the 512 left free for a sequence: r1 begins
    # when r0 has ended.
    result = serve([(0, "x:800", 3), (1, "y:800", 3)], engine={
        "max_model_len": 1600, "num_gpu_blocks": 101, "max_num_batched_tokens": 512}, pools=APART,
        kv_transfer=LINK | {"protocol": "sglang"})

    assert ms(result, "prefill_done", "first_token", "completed") == [26.02, 27.363718, 38.191218]
    assert ms(result, "scheduled", "prefill_done", "first_token", "completed", request=1) == [
        38.191218, 64.211218, 65.554936, 76.382436]


def test_a_prompt_is_computed_anew_behind_its_cached_part_when_its_replica_is_lost(serve):
    # The first request leaves 512 tokens and the adapter at both replicas. The second takes 10.615 from 500 on; its
    # prefill replica is lost at 510.715, and the decode replica, which notices at once, takes 10.615 for 100 tokens;
    # then 5.3195 x 1.5 + 0.1.
    result = serve([(0, "s:512", 1, "l"), (500, "s:512/b:100", 2, "l")], ["adapter"], {"lora": ADAPTERS}, pools=APART,
                   kv_transfer=LINK | {"protocol": "nixl", "failure_policy": "recompute"}, failures=[stop(510.715)])

    assert ms(result, "prefill_done", request=1) == [510.615]
    assert tokens_ms(result, 1) == [521.33, 529.40925]


def test_a_prompt_is_computed_where_its_lease_ran_out(serve):
    # The first request has its place at the decode replica from 23.382002 to 189.365002: 19.645, and 19 decodes of
    # 5.013 and 0.0005 x (101 to 119), x 1.5 + 0.1. The blocks of the other one, held from 33.23 on, are freed at 83.23;
    # its prompt takes 10.615.
    result = serve([(0, "x:100", 20, "l"), (1, "y:100", 3, "l")], ["adapter"], {"lora": ADAPTERS, "max_num_seqs": 1},
                   pools=APART, kv_transfer=LINK | {"protocol": "nixl", "failure_policy": "recompute", "lease_s": 0.05,
                                                    "heartbeats": False})

    assert ms(result, "prefill_done", "transfer_end", "completed") == [22.615, 23.382002, 189.365002]
    assert ms(result, "prefill_done", request=1) == [33.23]
    assert tokens_ms(result, 1) == [199.980002, 207.675252, 215.371252]


# ---- gateways and regions


def test_admission_way_and_router_come_before_an_adapter_is_loaded(serve):
    # 2 at home, 7 there, 1 to route; 12 and 10.615; 9 back. 5.0635 x 1.5 + 0.1 more.
    result = serve([(0, "x:100", 2, "l", "a")], ["adapter", "tenant"], {"lora": ADAPTERS}, cluster={
        "regions": FROM_A_TO_B, "admission": {"policy": "always", "latency_s": 0.002},
        "routing": {"latency_s": 0.001}})

    assert ms(result, "admitted", "enqueued", "first_token", "completed") == [2, 10, 41.615, 49.31025]


def test_a_request_waits_at_the_gateway_of_another_region(serve):
    # There at 7, 22.615 to its end; the other one, there at 8, goes to the replica then, and takes 10.615. 9 back.
    result = serve([(0, "x:100", 1, "l", "a"), (1, "y:100", 1, "l", "a")], ["adapter", "tenant"], {"lora": ADAPTERS},
                   cluster={"regions": FROM_A_TO_B, "gateway_queue": {
                       "dispatch": "departures", "saturation": {"detector": "concurrency", "max_concurrency": 1}}})

    assert ms(result, "enqueued", "completed") == [7, 38.615]
    assert ms(result, "enqueued", "completed", request=1) == [29.615, 49.23]


def test_a_retry_goes_to_another_replica_of_its_region_and_all_is_done_anew_there(serve):
    # There at 7, lost at 50 in its first iteration; 30, 12 and 10.615, and 9 back. 7.69525 more.
    regions = FROM_A_TO_B | {"replicas": [0, 2]}
    result = serve([(0, "x:100", 2, "l", "g", "a")], ["adapter", "grammar", "tenant"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS}, topology=TWO, cluster={"regions": regions},
                   failures=[stop(50)])

    assert tokens_ms(result) == [111.615, 119.31025]


def test_a_gateway_decides_in_turn_and_again_about_a_retry(serve):
    # 4 and 0.5 for each of two replicas: at 5 and, in line since 1, at 10. Lost at 20, the first request takes 4 and
    # 0.5 again, and is at the other replica at 24.5, which begins its next iteration at 10 + 22.615: 5.02 + 2 + 0.003
    # + 0.0505, x 1.5 + 0.1.
    result = serve([(0, "x:100", 2, "l"), (1, "y:100", 2, "l")], ["adapter"], {"lora": ADAPTERS}, topology=TWO,
                   cluster={"gateways": {"decision_us": 4000.0, "decision_us_per_replica": 500.0, "workers": 1}},
                   failures=[stop(20)])

    assert ms(result, "enqueued", "dispatched") == [5, 24.5]
    assert ms(result, "gateway_wait", "enqueued", request=1) == [4, 10]
    assert tokens_ms(result) == [43.32525, 51.0205]
    assert tokens_ms(result, 1) == [32.615, 43.32525]


def test_a_client_gives_up_far_away_and_finds_its_prompt_there_the_next_time(serve):
    # There at 7, 30 to compile, 22.615 to compute. The client gives up at 45, which the region knows at 52, before the
    # end of the iteration. Sent again at 145, there at 152: four tokens, 5.09 x 1.5 + 0.1, and 9 back.
    result = serve([(0, "x:100", 2, "l", "g", "a")], ["adapter", "grammar", "tenant"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS}, cluster={"regions": FROM_A_TO_B}, workload={
                       "client_retry": {"timeout_s": 0.045, "attempts": 3, "backoff_s": 0.1, "factor": 1.0,
                                        "jitter": 0.0, "on": ["timeout"]}})

    assert ms(result, "enqueued", "first_token", "completed") == [152, 168.735, 176.43025]
    assert result.requests["cached_tokens"].tolist() == [96]


def test_both_legs_of_a_request_are_far_away_and_have_hosts_of_their_own(serve):
    # 7 there, 1.5 to the queue, 7.01; 0.2 for the answer, 0.7 to the other queue, 3 to shake hands, 0.767002; 5.03,
    # 0.2 and 9 back; 5.0635 and 5.064, and 0.3 to the end.
    host = {"queue_base_us": 1500.0, "output_token_us": 200.0, "completion_us": 300.0}
    decode = APART[1] | {"latency": {"host": {"queue_base_us": 700.0}}}
    regions = {name: value for name, value in FROM_A_TO_B.items() if name != "replicas"} | {"pools": [[], ["p", "d"]]}
    result = serve([(0, "x:100", 3, "a")], ["tenant"], pools=[APART[0], decode], latency={"host": host},
                   cluster={"regions": regions}, kv_transfer=LINK | {"protocol": "nixl", "handshake_ms": 3.0})

    assert ms(result, "enqueued", "prefill_done", "transfer_start", "transfer_end") == [8.5, 15.51, 19.41, 20.177002]
    assert tokens_ms(result) == [34.407002, 39.470502, 44.534502]
    assert ms(result, "completed") == [44.834502]


# ---- parts of a replica


def test_ranks_compile_and_load_for_themselves(serve):
    # 30, 12 and 10.615 at each; the third request finds both at the first rank.
    result = serve([(0, "x:100", 2, "l", "g"), (10, "y:100", 2, "l", "g"), (500, "z:100", 2, "l", "g")],
                   ["adapter", "grammar"],
                   {"lora": ADAPTERS, "structured_outputs": GRAMMARS, "data_parallel": {"lockstep": False}},
                   topology={"data_parallel": 2})

    assert result.requests["rank"].tolist() == [0, 1, 0]
    assert (result.requests["first_token_ns"] / 1e6).tolist() == [52.615, 62.615, 510.615]


def test_ranks_in_lock_step_wait_for_a_load_and_for_chunks(serve):
    # Chunks of 15.295, the first with 12 of the load, then 5.2695 x 1.5 + 0.1: the rank without an adapter has its
    # tokens at the same instants.
    result = serve([(0, "x:512", 2, "l"), (0, "y:100", 3, "")], ["adapter"],
                   {"lora": ADAPTERS, "max_num_batched_tokens": 256, "data_parallel": {"lockstep": True}},
                   topology={"data_parallel": 2})

    assert tokens_ms(result) == [42.59, 50.59425]
    assert tokens_ms(result, 1) == [27.295, 42.59, 50.59425]


def test_chunks_follow_each_other_through_stages_that_become_slow(serve):
    # Stages of 7.625: the second chunk enters the first when the first leaves it, and ends at 22.875; 5.5255 more. From
    # 400 on all takes twice as long: 14.02 for 100 tokens behind 1,024, 11.151 for the decode.
    result = serve([(0, "x:1024", 2), (500, "x:1024/y:100", 2)], engine={"max_num_batched_tokens": 512},
                   topology={"pipeline_parallel": 2}, failures=[
                       {"kind": "slow", "which": 0, "at_s": 0.4, "duration_s": 10.0, "slow_factor": 2.0}])

    assert tokens_ms(result) == [22.875, 28.4005]
    assert tokens_ms(result, 1) == [514.02, 525.171]
    assert result.requests["cached_tokens"].tolist() == [0, 1024]


def test_sglang_computes_chunks_with_an_adapter_and_finds_them_again(serve):
    # 2 to load and chunks of 22.975; 8.38825 and 8.389. The other one 10.615, and 8.46325.
    adapters = {"max_loras_per_batch": 1, "adapter_mb": 100.0, "h2d_gb_per_s": 50.0, "step_factor": 1.5,
                "per_adapter_us": 100.0}
    result = serve([(0, "x:1024", 3, "l"), (500, "x:1024/y:100", 2, "l")], ["adapter"], {
        "scheduler": "sglang", "max_model_len": 4096, "num_gpu_blocks": 1000, "block_size": 16,
        "chunked_prefill_size": 512, "lora": adapters})

    assert tokens_ms(result) == [47.95, 56.33825, 64.72725]
    assert tokens_ms(result, 1) == [510.615, 519.07825]
    assert result.requests["cached_tokens"].tolist() == [0, 1024]


def test_chunks_of_a_prompt_with_a_known_image_are_computed_and_the_image_is_not(serve):
    # Chunks of 128 and 122 tokens take 7.57 and 7.45, and 200 embeddings 2 in the first. The same image behind another
    # text takes no embeddings; behind the same text 15 blocks are there, and 30 tokens take 5.61.
    result = serve([(0, "t:50/a.img:200", 1), (500, "u:50/a.img:200", 1), (1000, "t:50/a.img:200/v:20", 1)],
                   engine={"encoder": {"us_per_embedding": 10.0}, "max_num_batched_tokens": 128})

    assert (result.requests["first_token_ns"] / 1e6).tolist() == [17.02, 515.02, 1005.61]
    assert result.requests[["cached_tokens", "encoded_tokens"]].tolist() == [(0, 200), (0, 0), (240, 0)]


def test_stages_share_an_iteration_with_an_adapter_and_the_first_one_loads_it(serve):
    # Two chunks of 22.975, half of it in each stage, and 12: the second chunk enters at 23.4875 and ends at 46.4625.
    # Then 8.38825 and 8.389.
    result = serve([(0, "x:1024", 3, "l")], ["adapter"], {
        "lora": ADAPTERS, "async_scheduling": True, "max_num_batched_tokens": 512}, topology={"pipeline_parallel": 2})

    assert tokens_ms(result) == [46.4625, 54.85075, 63.23975]
