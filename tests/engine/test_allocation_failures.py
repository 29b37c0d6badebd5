"""How often KV blocks were asked for in vain."""
import pytest

import simulator
from results.export.runs import PREEMPTED, busy_run
from support.engine import TEN_MS

ROLES = {"pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}], "kv_transfer.protocol": "nixl"}


def run(tmp_path, trace, **overrides):
    (tmp_path / "e.toml").write_text(TEN_MS)
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + trace)
    return simulator.run(tmp_path / "e.toml", {key.replace("__", "."): value for key, value in overrides.items()})


@pytest.mark.parametrize(("blocks", "trace", "failures"), [
    (2, "0,8,1\n", 1),              # BLIS: of a last token, too, KV is allocated, and both blocks are full
    (3, "0,8,1\n", 0),
    (2, "0,7,1\n", 0),              # it fits into the second
    (2, "0,8,1\n0,8,1\n", 2),       # one after the other
    (2, "0,8,0\n", 0)])             # there is none
@pytest.mark.parametrize("upstream", [True, False])
def test_blis_counts_those_for_the_last_token(tmp_path, blocks, trace, failures, upstream):
    (tmp_path / "e.toml").write_text(TEN_MS.replace(", async_scheduling = false", ""))
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + trace)
    summary = simulator.run(tmp_path / "e.toml", {
        "engine.scheduler": "blis", "engine.block_size": 4, "engine.num_gpu_blocks": blocks + 1,
        "engine.upstream_compat": upstream}).summary

    assert (summary["kv_allocation_failures"], summary["preemptions"]) == (failures, 0)


def test_elsewhere_each_leads_to_a_preemption(tmp_path):
    # Two prompts of 16 tokens fill a block each of 16; with its second token each needs another, and three are free.
    summary = run(tmp_path, "0,16,20\n0,16,20\n", engine__num_gpu_blocks=5).summary

    assert summary["kv_allocation_failures"] == summary["preemptions"] == 1     # at 33 tokens both need a third


@pytest.mark.parametrize("overrides", [PREEMPTED, ROLES | PREEMPTED, PREEMPTED | {"engine.scheduler": "blis"}])
def test_their_number_depends_on_no_fast_forward(tmp_path, overrides):
    counts = []
    for i, fast in enumerate((True, False)):
        (tmp_path / str(i)).mkdir()
        counts.append(busy_run(tmp_path / str(i), overrides | {"engine.fast_forward": fast}).summary[
            "kv_allocation_failures"])

    assert counts[0] == counts[1]
