"""Models and accelerators with round numbers, small enough to work out by hand."""
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import AcceleratorSpec, DenseFlops, NodeSpec
from simulator.domain.layers.gated_delta_net import GatedDeltaNet
from simulator.domain.layers.latent import LatentAttention
from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.domain.layers.networks import Mlp, Moe
from simulator.domain.memory_reserve import MemoryReserve
from simulator.domain.model_spec import ModelSpec, SlidingAttention
from simulator.domain.parallelism import Parallelism

# 1000 bytes/ns, 1e6 FLOP/ns in 16 bit and twice that in fp8, 100 bytes/ns between accelerators, 1 GB
ACCELERATOR = AcceleratorSpec(
    name="round", memory_bytes=1_000_000_000, memory_bandwidth_bytes_per_s=1e12, scaleup_bytes_per_s=1e11,
    pcie_bytes_per_s=1e10, scaleout_bytes_per_s=1e9,
    dense_flops_per_s=DenseFlops(bfloat16=1e15, float16=1e15, fp8=2e15))
NODE = NodeSpec(
    name="round-4", accelerator="round", num_accelerators=8, scaleup_domain_size=4, scaleup_bytes_per_s=1e11,
    num_nics=1, nic_bytes_per_s=1e9, scaleout_bytes_per_s=1e9)

# Per layer: q 64 x 64, k and v 64 x 32 each, o 64 x 64 = 12,288 weights; MLP 3 x 64 x 128 = 24,576. Head 1024 x 64.
DENSE = ModelSpec(
    name="dense", num_layers=2, hidden_size=64, vocab_size=1024, max_position_embeddings=4096, dtype="bfloat16",
    attention=MultiHeadAttention(num_heads=4, num_kv_heads=2, head_dim=16), mlp=Mlp(intermediate_size=128))
# One layer dense, one with 8 experts of 3 x 64 x 32 = 6,144 weights, 2 chosen, and a shared one of the same size.
MIXTURE = replace(
    DENSE, name="mixture", first_dense_layers=1,
    moe=Moe(num_experts=8, experts_per_token=2, intermediate_size=32, shared_intermediate_size=32))
# Latent of 32 + 8 elements a token; queries of rank 48; 4 heads of 16 + 8, values of 16.
LATENT = replace(DENSE, name="latent", attention=LatentAttention(
    num_heads=4, query_rank=48, kv_rank=32, nope_head_dim=16, rope_head_dim=8, value_head_dim=16))
# One layer sees everything, one the last 100 tokens.
SLIDING = replace(DENSE, name="sliding", layer_pattern="SF", sliding_attention=SlidingAttention(window=100))
# One layer keeps 4 x 16 x 16 + (2 x 32 + 64) x 3 = 1,408 elements of state a sequence, one has attention.
RECURRENT = replace(DENSE, name="recurrent", layer_pattern="LF", linear_attention=GatedDeltaNet(
    num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=16, conv_kernel=4))

# Nothing lies outside PyTorch, is estimated, or sampled with; experts' buffers are of one layer.
NO_RESERVE = MemoryReserve(
    driver_bytes=0, alone_bytes=0, alone_before_hopper_bytes=0, stages_bytes=0, linked_bytes=0, without_link_bytes=0,
    beyond_domain_bytes=0, sampler_bytes_per_logit=0, hidden_copies=1, keeps_workspaces=False)


def deploy(model=DENSE, node=None, accelerator=ACCELERATOR, weight_dtype=None, kv_cache_dtype="auto",
           gpu_memory_utilization=1.0, **ways):
    """Return `model` on `accelerator`; further keywords are degrees of parallelism."""
    return Deployment(
        model=model, accelerator=accelerator, node=node, parallelism=Parallelism(**ways), weight_dtype=weight_dtype,
        kv_cache_dtype=kv_cache_dtype, gpu_memory_utilization=gpu_memory_utilization)
