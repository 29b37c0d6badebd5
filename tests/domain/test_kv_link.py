"""Over what a KV cache is copied: Llama-3.1-8B has 32 layers of 8 KV heads of 128 elements, keys and values."""
import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, load_node
from simulator.domain.kv_layout import kv_layout
from simulator.domain.kv_link import kv_link, kv_wire
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


def deployment(model, tensor_parallel, hardware="h100-sxm-80gb"):
    return Deployment(model=load_model(model), accelerator=load_accelerator(hardware),
                      parallelism=Parallelism(tensor_parallel=tensor_parallel))


@pytest.mark.parametrize(("model", "source", "destination", "token_bytes", "sending"), [
    # 94 layers, 4 KV heads of 128 elements, keys and values of 2 bytes: 192,512; at TP 8 each head is there twice
    ("qwen3-235b-a22b", 8, 8, 385_024, 8), ("qwen3-235b-a22b", 4, 8, 385_024, 4),
    ("qwen3-235b-a22b", 8, 4, 192_512, 4),          # two ranks hold each head: one of them sends
    ("qwen3-235b-a22b", 4, 4, 192_512, 4), ("qwen3-235b-a22b", 4, 2, 192_512, 4), ("qwen3-235b-a22b", 8, 2, 192_512, 4),
    ("llama-3.1-8b", 4, 2, TOKEN_BYTES, 4), ("llama-3.1-8b", 1, 2, TOKEN_BYTES, 1),
    # The latent of 512 + 64 elements of 61 layers goes to each rank whole, from one.
    ("deepseek-v3", 8, 8, 8 * 61 * 576 * 2, 8), ("deepseek-v3", 8, 2, 2 * 61 * 576 * 2, 2)])
def test_what_is_on_the_wire(model, source, destination, token_bytes, sending):
    wire = kv_wire(deployment(model, source), deployment(model, destination))

    assert (wire.bytes_per_token, wire.source_frac * source) == (token_bytes, sending)


def test_recurrent_layers_have_a_state_to_send():
    model = load_model("qwen3-next-80b-a3b")
    wire = kv_wire(deployment(model.name, 2), deployment(model.name, 2))

    assert wire.bytes_per_request == 2 * kv_layout(deployment(model.name, 2)).state_bytes_per_sequence > 0


@pytest.mark.parametrize(("source", "destination", "gigabytes"), [(8, 8, 12.617), (8, 4, 6.308), (4, 8, 12.617)])
def test_the_wire_of_a_long_prompt(source, destination, gigabytes):
    # T5. Mooncake measured 12.62 GB for 32,768 tokens between machines at TP 8.
    wire = kv_wire(deployment("qwen3-235b-a22b", source), deployment("qwen3-235b-a22b", destination))

    assert 32_768 * wire.bytes_per_token / 1e9 == pytest.approx(gigabytes, abs=1e-3)
