"""Context parallelism in an experiment: what it changes, and what it cannot go with."""
import pytest
from msgspec.structs import replace

from simulator.assembly.context import block_tokens
from simulator.assembly.site import Site
from simulator.domain.kv_groups import plan_groups
from simulator.domain.layer_groups import GivenGroup, GroupRules
from simulator.domain.layers.indexer import Indexer
from simulator.domain.memory_plan import plan
from simulator.domain.parallelism import Parallelism
from support.small_models import DENSE, LATENT, NO_RESERVE, RECURRENT, SLIDING, deploy

TWO = "topology = {tensor_parallel = 4, decode_context_parallel = 2}"
SHARED = "topology.decode_context_parallel"


def planned(degree):
    return plan(deploy(LATENT, tensor_parallel=4, decode_context_parallel=degree), 16, 512, 1000, 8, NO_RESERVE)


def test_as_many_blocks_hold_the_tokens_of_all_ranks():
    one, four = planned(1), planned(4)
    assert (four.num_gpu_blocks, four.block_bytes) == (one.num_gpu_blocks, one.block_bytes)
    assert (one.block_size, four.block_size) == (16, 64)
    assert four.request_bytes == one.request_bytes / 4          # 512 tokens: 8 blocks instead of 32
    assert "4 accelerators share the tokens of a sequence" in four.explain()


def test_blocks_of_full_attention_grow_and_those_of_states_do_not():
    model = replace(RECURRENT, attention=replace(RECURRENT.attention, num_kv_heads=1))
    one, two = (plan_groups(deploy(model, tensor_parallel=2, decode_context_parallel=n), 16, 4096).layers
                for n in (1, 2))
    sizes = [{group.kind: group.block_size for group in layers.groups} for layers in (one, two)]
    assert sizes[1]["full_attention"] == 2 * sizes[0]["full_attention"]
    assert sizes[1]["linear_attention"] == sizes[0]["linear_attention"]
    assert two.chunk_alignment == one.chunk_alignment


def test_given_groups_of_full_attention_grow():
    rules = GroupRules(given=(GivenGroup(kind="full_attention"), GivenGroup(kind="linear_attention")))
    assert [group.block_size for group in rules.groups_given(16, 512, 4).groups] == [64, 16]


def test_a_block_of_a_replica_holds_the_tokens_of_all_ranks(load):
    assert block_tokens(load(TWO)) == 32
    assert Site(load(TWO)).check().explain() == ["1000 blocks of 32 tokens, shared by several accelerators"]


@pytest.mark.parametrize(("model", "ways", "why"), [
    (DENSE, (2, 2), "is above tensor_parallel / KV heads = 2 / 2 = 1"),
    (replace(DENSE, attention=replace(DENSE.attention, num_heads=6, num_kv_heads=2)), (6, 2), "does not divide the 3"),
    (SLIDING, (4, 2), "layers with windows"),
    (LATENT, (4, 3), "does not divide tensor_parallel = 4"),
    (replace(LATENT, attention=replace(LATENT.attention, indexer=Indexer(num_heads=2, head_dim=8, top_k=64))), (4, 4),
     "an indexer picks")])
def test_models_whose_kv_cannot_be_shared_so_are_refused(model, ways, why):
    tensor, degree = ways
    found = Parallelism(tensor_parallel=tensor, decode_context_parallel=degree).faults(model)
    assert why in found[0]


def test_copies_of_a_head_may_share_its_tokens():
    assert Parallelism(tensor_parallel=4, decode_context_parallel=2).faults(DENSE) == []
    assert Parallelism(tensor_parallel=4, decode_context_parallel=4).faults(LATENT) == []


@pytest.mark.parametrize(("said", "message"), [
    (["topology = {tensor_parallel = 4, decode_context_parallel = 3}"],
     f"{SHARED}: expected a divisor of tensor_parallel = 4, found 3"),
    ([TWO, "topology.cp_kv_cache_interleave_size = 5"],
     "topology.cp_kv_cache_interleave_size: expected a divisor of engine.block_size = 16, found 5"),
    (["topology.cp_kv_cache_interleave_size = 4"],
     f"topology.cp_kv_cache_interleave_size: expected 1 with {SHARED} = 1, found 4: nothing is shared"),
    (["topology.dcp_comm_backend = 'a2a'"],
     f'topology.dcp_comm_backend: expected "ag_rs" with {SHARED} = 1, found "a2a": nothing is shared'),
    ([TWO, "latency = {backend = 'blackbox', beta = [5000.0, 20.0, 15.0]}"],
     f'{SHARED}: expected 1 with latency.backend = "blackbox", found 2: it does not price the context of decodes '
     'separately, as "roofline", "operators" and "linear" do'),
    ([TWO, "engine.kv_cache_groups = [{kind = 'full_attention'}, {kind = 'sliding_attention', window = 64}]"],
     'engine.kv_cache_groups[1].kind: expected "full_attention" or "linear_attention" with '
     f'{SHARED} = 2, found "sliding_attention": vLLM shares no windows'),
    ([TWO, "kv_tiers = {cpu_gib = 1.0, kv_bytes_per_token = 1e5, h2d_gb_per_s = 1.0, d2h_gb_per_s = 1.0}"],
     f"kv_tiers: expected none with {SHARED} = 2: tiers do not support blocks with tokens on several ranks"),
    ([TWO, "pools = [{name = 'p', role = 'prefill'}, {name = 'd', role = 'decode'}]", "engine.async_scheduling = false",
      "kv_transfer = {bandwidth_gb_per_s = 40.0, kv_bytes_per_token = 1e5}"],
     f'kv_transfer: expected none with {SHARED} = 2 in pool "p": transfer of KV between such ranks is not '
     "supported"),
    ([TWO, "cluster.rescheduling = {policy = 'rebalance', mode = 'live', kv_bytes_per_token = 1e5, "
           "bandwidth_gb_per_s = 1.0}"],
     f'cluster.rescheduling.mode: expected "recompute" with {SHARED} = 2, found "live": transfer of KV between such '
     "ranks is not supported")])
def test_what_does_not_go_together_is_refused(load, faults, said, message):
    assert f"--set: {message}" in faults(load, *said)


# ---- prompts

DIVIDED = "topology = {tensor_parallel = 2, prefill_context_parallel = 2}"
BESIDE = "with topology.prefill_context_parallel = 2"


@pytest.mark.parametrize(("said", "message"), [
    ([DIVIDED, "latency = {backend = 'blackbox', beta = [5000.0, 20.0, 15.0]}"],
     'topology.prefill_context_parallel: expected 1 with latency.backend = "blackbox", found 2: it does not price '
     'parts of a prompt, as "roofline", "operators" and "linear" do'),
    ([DIVIDED, "topology.decode_context_parallel = 2"],
     f"topology.decode_context_parallel: expected 1 {BESIDE}, found 2: sharing of the gathered KV over ranks is not "
     "supported"),
    ([DIVIDED, "topology.pipeline_parallel = 2"],
     f"topology.pipeline_parallel: expected 1 {BESIDE}, found 2: vLLM does not divide prompts over ranks of a stage"),
    ([DIVIDED, "topology.data_parallel = 2"],
     f"topology.data_parallel: expected 1 {BESIDE}, found 2: vLLM 0.32 does not start such ranks"),
    ([DIVIDED, "topology.expert_parallel = 2"],
     "topology.expert_parallel: expected 1, or tensor_parallel x prefill_context_parallel = 4, found 2"),
    ([DIVIDED, "kv_tiers = {cpu_gib = 1.0, kv_bytes_per_token = 1e5, h2d_gb_per_s = 1.0, d2h_gb_per_s = 1.0}"],
     f"kv_tiers: expected none {BESIDE}: tiers do not support KV that all ranks keep"),
    ([DIVIDED, "engine.lora = {max_loras = 2}"], f"engine.lora: expected none {BESIDE}: vLLM refuses it"),
    ([DIVIDED, "engine.cuda_graphs = {mode = 'piecewise'}"],
     f'engine.cuda_graphs.mode: expected "none" {BESIDE}, found "piecewise": padding of the rows of a rank is not '
     "supported"),
    ([DIVIDED, "engine.kv_cache_groups = [{kind = 'full_attention'}, {kind = 'linear_attention'}]"],
     'engine.kv_cache_groups[1].kind: expected "full_attention" or "sliding_attention" or "chunked_attention" '
     f'{BESIDE}, found "linear_attention": a state passes from token to token'),
    ([DIVIDED, "latency = {backend = 'operators', all2all_backend = 'deepep_low_latency'}"],
     f'latency.all2all_backend: expected "allgather_reducescatter" {BESIDE}, found "deepep_low_latency": vLLM gathers '
     "and scatters"),
    ([DIVIDED, "pools = [{name = 'p', role = 'prefill'}, {name = 'd', role = 'decode'}]",
      "engine.async_scheduling = false", "kv_transfer = {bandwidth_gb_per_s = 40.0, kv_bytes_per_token = 1e5}"],
     f'kv_transfer: expected none {BESIDE} in pool "p": transfer of KV between such ranks is not supported'),
    ([DIVIDED, "cluster.rescheduling = {policy = 'rebalance', mode = 'live', kv_bytes_per_token = 1e5, "
               "bandwidth_gb_per_s = 1.0}"],
     f'cluster.rescheduling.mode: expected "recompute" {BESIDE}, found "live": transfer of KV between such ranks is '
     "not supported")])
def test_what_does_not_go_with_divided_prompts_is_refused(load, faults, said, message):
    assert f"--set: {message}" in faults(load, *said)
