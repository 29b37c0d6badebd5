"""`scheduler = "sglang"`: what it refuses, and that what it cannot serve is told."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {scheduler = "sglang", num_gpu_blocks = 300, block_size = 1, max_model_len = 1000}
latency.backend = "linear"
workload = {type = "trace", path = "trace.csv"}
"""
TRACE = """arrived_at,num_prefill_tokens,num_decode_tokens,max_tokens,slo_class,priority
0.00,50,20,20,chat,0
0.01,100,500,500,batch,0
0.02,40,5,5,chat,1
"""


def serve(folder, trace=TRACE, **changes):
    """Return the result of an experiment, with these keys of [engine]."""
    (folder / "trace.csv").write_text(trace)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    seed = {"seed": changes.pop("seed")} if "seed" in changes else {}
    return simulator.run(folder / "experiment.toml",
                         seed | {f"engine.{key}": value for key, value in changes.items()})


def test_an_answer_ends_where_the_pool_does(tmp_path):
    result = serve(tmp_path)
    assert result.requests["status"].tolist() == [records.COMPLETED] * 3
    # 300 tokens, less 100 of the prompt, less one page, less one
    assert result.requests["output_tokens"].tolist() == [20, 198, 5]
    assert [records.FINISH_NAMES[code] for code in result.requests["finish_reason"]] == ["stop", "kv_pool", "stop"]
    assert (result.summary["requests"]["length_capped"], result.summary["requests"]["pool_capped"]) == (0, 1)
    assert result.summary["diagnosis"] == [
        "1 output was cut where the KV pool of their replica ends, request 1 first: the engine lets no text grow "
        "beyond; give it more blocks; they count as completed, with the tokens they got"]


def test_an_answer_ends_where_the_text_does(tmp_path):
    result = serve(tmp_path, num_gpu_blocks=3000, max_model_len=400)
    # 400, less one, less 100 of the prompt, less one
    assert result.requests["output_tokens"].tolist() == [20, 298, 5]
    assert (result.summary["requests"]["length_capped"], result.summary["requests"]["pool_capped"]) == (1, 0)
    assert "1 output was cut at max_model_len, request 1 first" in result.summary["diagnosis"][0]


def test_who_ignores_the_end_token_and_is_cut_short_is_admitted_when_it_is_alone(tmp_path):
    result = serve(tmp_path, enable_prefix_caching=False, ignore_eos=["batch"])
    assert result.requests["output_tokens"].tolist() == [20, 198, 5]
    assert (result.requests["scheduled_ns"][2] > result.requests["scheduled_ns"][1]).all()


def test_upstream_it_waits_for_ever_without_a_tree(tmp_path):
    result = serve(tmp_path, enable_prefix_caching=False, ignore_eos=["batch"], upstream_compat=True)
    assert result.requests["status"].tolist() == [records.COMPLETED, records.WAITING, records.WAITING]
    unserved, stuck = result.summary["diagnosis"]
    assert unserved.startswith("of 3 requests 1 was served: ")
    assert "request 1 and 1 behind it wait for ever: give more blocks, or lower max_tokens" in stuck


def test_a_full_queue_refuses_the_newest_or_the_least_preferred(tmp_path):
    alone = {"max_running_requests": 1, "max_queued_requests": 1}
    assert serve(tmp_path, **alone).requests["status"].tolist() == [
        records.COMPLETED, records.COMPLETED, records.REJECTED]
    assert serve(tmp_path, **alone, enable_priority_scheduling=True).requests["status"].tolist() == [
        records.COMPLETED, records.FAILED, records.COMPLETED]


@pytest.mark.parametrize("changes", [
    {}, {"disable_overlap_schedule": True}, {"enable_prefix_caching": False}, {"chunked_prefill_size": 32},
    {"chunked_prefill_size": 32, "enable_mixed_chunk": True}, {"fast_forward": False}])
def test_a_prompt_that_is_too_long_takes_its_turn_as_one_token(tmp_path, changes):
    # 300 tokens, less one, less 5: a prompt has fewer than 294
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
        f"{arrived},{tokens},4\n" for arrived, tokens in ((0, 293), (1, 294), (2, 5000), (2, 295), (3, 7)))
    result = serve(tmp_path, trace, **changes)

    assert result.requests["status"].tolist() == [records.COMPLETED, *[records.REJECTED] * 3, records.COMPLETED]
    assert result.requests["output_tokens"].tolist() == [4, 0, 0, 0, 4]
    for times in ("scheduled_ns", "first_token_ns", "completed_ns"):
        assert (result.requests[times] < 0).tolist() == [False, True, True, True, False]
    prompts = result.iterations["prefill_tokens"][result.iterations["start_ns"] >= 10**9]
    assert prompts[prompts > 0].tolist() == [1, 2, 7]
    assert result.replicas["completed"].tolist() == [2]
    assert result.summary["diagnosis"] == [
        "of 5 requests 2 were served: 3 rejected, of up to 5,000 prompt tokens, which are longer than the 293 tokens "
        "that max_model_len and the KV pool leave a prompt"]


def test_the_longest_prompt_that_is_taken_may_have_no_room_for_an_answer(tmp_path):
    # in pages of 4: 300 tokens hold 293 of a prompt in 296, and a page is kept free
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,293,4\n1,294,4\n2,287,4\n"
    result = serve(tmp_path, trace, block_size=4, num_gpu_blocks=75)
    assert result.requests["status"].tolist() == [records.COMPLETED, records.REJECTED, records.COMPLETED]
    assert result.requests["output_tokens"].tolist() == [1, 0, 4]


def order(result):
    """Return the requests in the order of their prompts."""
    return np.argsort(result.requests["scheduled_ns"], kind="stable").tolist()


def test_the_routing_key_that_most_have_goes_first(tmp_path):
    # While r0 executes alone, b and a of r1 to r3 come, then others; each batch has one prompt.
    keys = "x" + "bba" + "cabc"
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens,session,tenant\n" + "".join(
        f"{0.001 * i:.3f},{400 if i == 0 else 20},{50 if i < 4 else 5},{key},t\n" for i, key in enumerate(keys))
    by_key = {"schedule_policy": "routing-key"}
    found = {key: order(serve(tmp_path, trace, num_gpu_blocks=3000, prefill_max_requests=1, **given))
             for key, given in {"session": by_key, "fcfs": {}, "tenant": by_key | {"routing_key": "tenant"}}.items()}

    # x runs: no one else has it, and those who wait are sorted by their keys: a, a, b, b, b, c, c. From then on those
    # with keys that run: a's, then, as b is of as many, b's.
    assert found["session"] == [0, 3, 5, 1, 2, 6, 4, 7]
    assert found["fcfs"] == found["tenant"] == list(range(8))


def test_a_random_order_follows_the_seed(tmp_path):
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,400,5\n" + "0.001,20,5\n" * 12
    one, same, other, fair = (
        order(serve(tmp_path, trace, num_gpu_blocks=3000, prefill_max_requests=1, **given))
        for given in ({"schedule_policy": "random"}, {"schedule_policy": "random"},
                      {"schedule_policy": "random", "seed": 8}, {}))

    assert one == same
    assert sorted(one) == fair == list(range(13))
    assert one != fair and one != other


def test_decodes_count_for_hrrn_upstream_alone(tmp_path):
    # r0's 60 tokens run on alone. r1 waits for 100 tokens from the first decode on, r2 for 10 from the tenth on: what
    # was processed since is nothing, and ids decide; upstream 60 a decode favour whose prompt is the shorter.
    trace = ("request_id,arrived_at,num_prefill_tokens,num_decode_tokens\na,0,60,400\nb,0.01,100,5\nc,0.02,10,5\n")
    first = {upstream: order(serve(
        tmp_path, trace, num_gpu_blocks=3000, schedule_policy="hrrn", prefill_max_requests=1, max_running_requests=2,
        prefill_decode_interval=40, upstream_compat=upstream)) for upstream in (False, True)}

    assert first == {False: [0, 1, 2], True: [0, 2, 1]}


def test_a_batch_keeps_to_max_prefill_tokens_but_upstream(tmp_path):
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,60,5\n0,60,5\n0,60,5\n"
    for upstream, first in ((False, 60), (True, 120)):
        result = serve(tmp_path, trace, num_gpu_blocks=3000, max_prefill_tokens=100, upstream_compat=upstream)
        assert result.iterations["prefill_tokens"][0] == first


def test_an_unfinished_prompt_makes_room_for_decodes_but_upstream(tmp_path):
    # 160 tokens: r0 decodes, and r1's chunks of 32 tokens of 77 keep theirs for ten decodes each.
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,56,72\n0.01,77,3\n"
    given = {"block_size": 4, "num_gpu_blocks": 40, "chunked_prefill_size": 32, "prefill_decode_interval": 10,
             "schedule_conservativeness": 0.1, "disable_overlap_schedule": True}
    kept = serve(tmp_path, trace, **given)
    lost = serve(tmp_path, trace, **given, upstream_compat=True)

    assert kept.requests["status"].tolist() == [records.COMPLETED] * 2
    assert kept.requests["preemptions"].tolist() == [0, 1]
    assert lost.requests["status"][0] == records.FAILED
    assert lost.summary["diagnosis"] == ["replica 0: 1 request failed, 0 first: it ran alone, and no KV block was left "
                                         "for its next token; give more blocks"]


@pytest.mark.parametrize(("changes", "message"), [
    ({"retraction_policy": "priority"}, "goes with enable_priority_scheduling = true"),
    ({"chunked_prefill_size": -1, "enable_mixed_chunk": True}, "expected false where prompts are not cut"),
    ({"chunked_prefill_size": 16, "block_size": 32}, "expected at least block_size = 32, found 16"),
    ({"prefill_decode_interval_min_bs": 2}, "goes with prefill_decode_interval"),
    ({"ignore_eos": ["nobody"]}, 'no request is of SLO class "nobody"'),
    ({"schedule_policy": "randomly"}, 'found "randomly"'),
    ({"routing_key": "tenant"}, 'goes with schedule_policy = "routing-key", found "fcfs"'),
    ({"max_num_seqs": 4}, "max_num_seqs: unknown key"),
    ({"encoder": {}}, "engine.encoder: expected none with \"sglang\": SGLang encodes images before"),
    ({"lora": {"max_loras": 2}}, "engine.lora.max_loras: unknown key"),
    ({"structured_outputs": {"draft_valid_rate": 0.5}}, "structured_outputs.draft_valid_rate: unknown key"),
    ({"cuda_graph_bs_decode": [4], "cuda_graph_max_bs_decode": 4}, "expected none with cuda_graph_bs_decode"),
    ({"cuda_graph_bs_decode": [4], "cuda_graph_backend_decode": "disabled"}, "expected none with cuda_graph_"),
    ({"cuda_graphs": {}}, "engine.cuda_graphs: expected none with \"sglang\": SGLang has cuda_graph")])
def test_what_cannot_be_had_is_refused(tmp_path, changes, message):
    with pytest.raises(InputErrors) as caught:
        serve(tmp_path, **changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(("sections", "messages"), [
    ({"topology": {"pipeline_parallel": 2}},
     ['topology.pipeline_parallel: expected 1 with engine.scheduler = "sglang", found 2: it supports no stages']),
    ({"kv_tiers": {"protocol": "lmcache"}},
     ['kv_tiers.protocol: expected another with engine.scheduler = "sglang", found "lmcache": it goes with scheduler '
      '"vllm": a tier needs a hash for each block; its radix cache has pages along edges of a tree, without hashes']),
    ({"workload.images": {"rule": "tokens_per_image", "tokens_per_image": 20,
                          "count": {"distribution": "constant", "value": 1}}},
     ['engine.scheduler: "sglang" knows no images: its tree of prefixes'])])
def test_sections_that_cannot_be_had_are_refused(tmp_path, sections, messages):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    with pytest.raises(InputErrors) as caught:
        simulator.run(tmp_path / "experiment.toml", sections)
    assert len(caught.value.faults) == len(messages)
    for fault, message in zip(caught.value.faults, messages, strict=True):
        assert message in fault
