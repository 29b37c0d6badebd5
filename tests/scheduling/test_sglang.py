"""`scheduler = "sglang"`: what it refuses, and that what it cannot serve is told."""
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


def serve(folder, **changes):
    """Return the result of an experiment, with these keys of [engine]."""
    (folder / "trace.csv").write_text(TRACE)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    return simulator.run(folder / "experiment.toml", {f"engine.{key}": value for key, value in changes.items()})


def test_an_answer_ends_where_the_pool_does(tmp_path):
    result = serve(tmp_path)
    assert result.requests["status"].tolist() == [records.COMPLETED] * 3
    # 300 tokens, less 100 of the prompt, less one page, less one
    assert result.requests["output_tokens"].tolist() == [20, 198, 5]


def test_who_ignores_the_end_token_and_is_cut_short_waits_for_ever_without_a_tree(tmp_path):
    result = serve(tmp_path, enable_prefix_caching=False, ignore_eos=["batch"])
    assert result.requests["status"].tolist() == [records.COMPLETED, records.WAITING, records.WAITING]
    assert len(result.summary["diagnosis"]) == 1
    assert "request 1 and 1 behind it wait for ever: give more blocks, or lower max_tokens" in (
        result.summary["diagnosis"][0])


def test_a_full_queue_refuses_the_newest_or_the_least_preferred(tmp_path):
    alone = {"max_running_requests": 1, "max_queued_requests": 1}
    assert serve(tmp_path, **alone).requests["status"].tolist() == [
        records.COMPLETED, records.COMPLETED, records.REJECTED]
    assert serve(tmp_path, **alone, enable_priority_scheduling=True).requests["status"].tolist() == [
        records.COMPLETED, records.FAILED, records.COMPLETED]


@pytest.mark.parametrize(("changes", "message"), [
    ({"retraction_policy": "priority"}, "goes with enable_priority_scheduling = true"),
    ({"chunked_prefill_size": -1, "enable_mixed_chunk": True}, "expected false where prompts are not cut"),
    ({"chunked_prefill_size": 16, "block_size": 32}, "expected at least block_size = 32, found 16"),
    ({"prefill_decode_interval_min_bs": 2}, "goes with prefill_decode_interval"),
    ({"ignore_eos": ["nobody"]}, 'no request is of SLO class "nobody"'),
    ({"schedule_policy": "random"}, 'found "random"'),
    ({"max_num_seqs": 4}, "max_num_seqs: unknown key")])
def test_what_cannot_be_had_is_refused(tmp_path, changes, message):
    with pytest.raises(InputErrors) as caught:
        serve(tmp_path, **changes)
    assert message in str(caught.value)
