"""Memory of an accelerator outside weights and KV cache, by version of vLLM, with the source of every number.

Logs are start-up lines of servers ("Memory profiling takes ...", "Available KV cache memory"); a number of vLLM's own
repository is that of an issue or a pull request. GiB are of one accelerator.
"""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.vllm_versions import NEWEST, complete

GIB = 2**30
# Ranks of a stage beyond which its all-reduces leave the scale-up domain, unless a node gives the domain's size.
DOMAIN_SIZE = 8
SINCE_HOPPER = ("Hopper", "Blackwell", "Blackwell Ultra")


class MemoryReserve(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes, and bytes of a logit, as one version of the engine has them."""

    # The driver keeps this much from every process unless the accelerator's file has a number: an H100 of 79.65 GiB
    # shows vLLM 79.22 GiB (pull request 10511).
    driver_bytes: float = 0.43 * GIB

    # Memory that PyTorch does not see. One accelerator: 0.24 GiB on an H100 (0.19), 0.02 to 0.03 on an RTX 4090, an
    # RTX A6000 and an L40S (0.10.2, 0.15), 0.16 GiB on a card of 16 GiB and 0.47 GiB on an RTX 3090 (July and September
    # 2026; the middle is taken). Pipeline stages of one accelerator each: 0.07 GiB (H100, 0.19). Ranks that reduce over
    # NVLink, with buffers of NCCL and of custom all-reduces: 2.06 to 2.13 GiB (H100, 2 and 4 ranks, 0.19), 1.38 GiB
    # (H200, 2 ranks, 0.10.2); over PCIe, where vLLM has no custom ones: 0.21 GiB (L40S, 8 ranks, 0.10.2); over two
    # nodes: about 4 GiB (H100, 16 ranks). Other makers' accelerators are taken as alike: no log of theirs is known.
    alone_bytes: float = 0.24 * GIB
    alone_before_hopper_bytes: float = 0.03 * GIB
    stages_bytes: float = 0.07 * GIB
    linked_bytes: float = 2.1 * GIB
    without_link_bytes: float = 0.21 * GIB
    beyond_domain_bytes: float = 4.0 * GIB

    # Bytes per row and vocabulary entry while sampling, more of several ranks, and bytes that stay for as long as the
    # server runs.
    sampler_bytes_per_logit: float = 14.5
    gather_bytes_per_logit: float = 0.0
    sampler_state_bytes_per_logit: float = 0.0
    # Copies of the hidden states of all tokens that are there while sampling.
    hidden_copies: float = 2.0
    # Workspaces of experts stay after the profile run (vllm/v1/worker/workspace.py); else they are of one layer.
    keeps_workspaces: bool = True
    # Of vLLM's estimate of CUDA graphs, which it subtracts before it counts KV blocks: bytes for a layer in a graph,
    # graphs that are captured, and the estimate of all where a key gives it.
    graph_layer_bytes: float = 0.0
    num_graphs: int = 0
    given_graph_bytes: float | None = None

    def graph_bytes(self, num_layers: int) -> float:
        """Return the estimate of the CUDA graphs of a stage of so many layers."""
        if self.given_graph_bytes is not None:
            return self.given_graph_bytes
        return self.num_graphs * num_layers * self.graph_layer_bytes


# 0.10: the sampler sorts. 38.5 bytes: 1.40 GiB of activations for 256 rows of 151,936 logits on an L40S, an RTX 4090
# and an RTX A6000, 5.58 GiB for 1,024 such rows on an H200 (0.10.2), independent of the tokens of a batch.
_SORTING = MemoryReserve(
    linked_bytes=1.38 * GIB, sampler_bytes_per_logit=38.5, hidden_copies=0.0, keeps_workspaces=False)
# 0.19: 14.5 bytes (a 16-bit logit, its float32 copy, probabilities and noise) and two hidden states a token: 1.89, 2.21
# and 2.87 GiB for 1,024 rows of 128,256, 152,064 and 201,088 logits and 8,192 tokens (Llama-3.1-8B, Qwen2.5-7B,
# gpt-oss-20b on H100, any number of ranks); with workspaces of experts 1.21, 1.93 and 2.68 GiB (Mixtral-8x7B over two,
# DeepSeek-V2-Lite, Qwen3-30B-A3B). This gives 1.90, 2.21, 2.87 and 1.22, 1.92, 2.66.
_SAMPLING = MemoryReserve()
# Since 0.21 an estimate of CUDA graphs is taken off as well. vLLM captures two graphs of each mode and multiplies
# (gpu_model_runner.py, profile_cudagraph_memory): the estimate grows with the graphs and with the kernels of each. 0.29
# MiB for a layer in a graph is the median of 17 start-up logs (0.18 to 0.27, tests/domain/test_graph_memory.py), of
# which half lie within 1.5 times of it and the others up to 5 times above or below: first captures, old drivers and
# memory shared with a CPU add bytes that depend on no option. With a constant in its place the logs are missed by 2.4
# times in the mean, with this by 1.7, each log left out in turn.
GRAPH_LAYER_BYTES = 0.29 * 2**20
GRAPH_MEAN_ERROR = 1.7      # times that a log lies above or below in the mean, each left out in turn
GRAPH_ERROR = 5.0           # at most
_WITH_GRAPHS = MemoryReserve(graph_layer_bytes=GRAPH_LAYER_BYTES, alone_before_hopper_bytes=0.31 * GIB)
# 0.32: the second model runner (vllm/config/vllm.py, use_v2_model_runner). Its sampler processes no logits in the
# profile run: they have 16 bit, and with several ranks lie there three times, as computed, gathered and in order, up to
# 3 bytes more. Counts of outputs and a mask of prompts stay, 4 + 1/8 bytes a logit (sampler.py and penalties.py of
# vllm/v1/worker/gpu/sample). That leaves the forward pass as the peak: 90 kB for each token of a batch of Qwen3-8B
# (issue 48322, RTX 4090), which is counted for it. Of its estimate of graphs, which measures those of pieces and
# extrapolates whole ones (gpu/cudagraph_utils.py), no log is known that names its deployment: the first runner's is
# taken.
_SECOND_RUNNER = MemoryReserve(
    sampler_bytes_per_logit=2.0, gather_bytes_per_logit=3.0, sampler_state_bytes_per_logit=4.125,
    graph_layer_bytes=GRAPH_LAYER_BYTES, alone_before_hopper_bytes=0.31 * GIB)
RESERVES = complete({"0.10": _SORTING, "0.19": _SAMPLING, "0.24": _WITH_GRAPHS, "0.32": _SECOND_RUNNER})


def reserve_of(version: str = NEWEST, num_graphs: int = 0, graph_gib: float | None = None) -> MemoryReserve:
    """Return the memory that a version of vLLM reserves.

    num_graphs : CUDA graphs that it captures. graph_gib : its estimate of their memory; None: by the law of logs.
    """
    given = None if graph_gib is None else graph_gib * GIB
    return msgspec.structs.replace(RESERVES[version], num_graphs=num_graphs, given_graph_bytes=given)


def usable_bytes(deployment: Deployment, reserve: MemoryReserve) -> float:
    """Return the memory that the driver shows a process."""
    accelerator = deployment.accelerator
    return accelerator.usable_memory_bytes or accelerator.memory_bytes - reserve.driver_bytes


def outside_bytes(deployment: Deployment, reserve: MemoryReserve) -> float:
    """Return the memory of an accelerator that PyTorch does not see."""
    ways, accelerator, ranks = deployment.parallelism, deployment.accelerator, deployment.parallelism.expert_ranks
    if ways.num_accelerators == 1:
        is_new = accelerator.architecture in SINCE_HOPPER
        return reserve.alone_bytes if is_new else reserve.alone_before_hopper_bytes
    if ranks == 1:
        return reserve.stages_bytes
    if not accelerator.scaleup_bytes_per_s or (ranks > 2 and "bridge" in accelerator.scaleup_link):
        return reserve.without_link_bytes
    return reserve.linked_bytes if ranks <= domain_size(deployment) else reserve.beyond_domain_bytes


def domain_size(deployment: Deployment) -> int:
    """Return how many accelerators one scale-up domain holds."""
    return deployment.node.scaleup_domain_size if deployment.node else DOMAIN_SIZE
