"""Over what a KV cache is copied: Llama-3.1-8B has 32 layers of 8 KV heads of 128 elements, keys and values."""
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.kv_link import kv_link
from simulator.domain.parallelism import Parallelism

TOKEN_BYTES = 2 * 32 * 8 * 128 * 2


def link_of(node=None, **ways):
    return kv_link(Deployment(
        model=load_model("llama-3.1-8b"), accelerator=load_accelerator("h100-sxm-80gb"),
        node=node and load_node(node), parallelism=Parallelism(**ways)))


def test_a_token_has_its_bytes_however_it_is_spread():
    assert link_of().bytes_per_token == link_of(tensor_parallel=4).bytes_per_token == TOKEN_BYTES
    assert link_of(pipeline_parallel=2).bytes_per_token == TOKEN_BYTES


def test_heads_that_are_repeated_are_copied_repeatedly():
    assert link_of(tensor_parallel=16).bytes_per_token == 2 * TOKEN_BYTES


def test_all_accelerators_of_a_replica_copy_at_once():
    one, four = link_of("dgx-h100"), link_of("dgx-h100", tensor_parallel=2, pipeline_parallel=2)
    assert four.scaleup_bytes_per_s == 4 * one.scaleup_bytes_per_s == 4 * load_node("dgx-h100").scaleup_bytes_per_s
    assert four.scaleout_bytes_per_s == 4 * load_node("dgx-h100").scaleout_bytes_per_s


def test_replicas_share_a_scale_up_domain_as_far_as_it_reaches():
    assert link_of("dgx-h100", tensor_parallel=2).replicas_per_domain == 4
    assert link_of("dgx-h100", tensor_parallel=16).replicas_per_domain == 1


def test_without_a_node_only_the_network_card_is_known():
    link = link_of()
    assert (link.scaleup_bytes_per_s, link.replicas_per_domain) == (0.0, 1)
    assert link.scaleout_bytes_per_s == load_accelerator("h100-sxm-80gb").scaleout_bytes_per_s > 0
