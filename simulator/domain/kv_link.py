"""Links that copy the KV cache of a replica to another, and the number of bytes."""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.kv_layout import kv_layout


class KvLink(msgspec.Struct, frozen=True, kw_only=True):
    """Of the accelerators together that hold a sequence; rates are per direction."""

    bytes_per_token: float
    scaleup_bytes_per_s: float          # 0: not known
    scaleout_bytes_per_s: float
    replicas_per_domain: int            # replicas in a scale-up domain; with data parallelism: ranks


def kv_link(deployment: Deployment) -> KvLink:
    """Return the links of a deployment: each rank copies its own shard, all at once.

    Without a node there is no scale-up domain to share, and the network card is the one typical of the accelerator.
    """
    ways, node, accelerator = deployment.parallelism, deployment.node, deployment.accelerator
    ranks = ways.tensor_parallel * ways.pipeline_parallel
    outer = node.scaleout_bytes_per_s if node else accelerator.scaleout_bytes_per_s
    return KvLink(
        bytes_per_token=kv_layout(deployment).bytes_per_token * ways.tensor_parallel,
        scaleup_bytes_per_s=node.scaleup_bytes_per_s * ranks if node else 0.0, scaleout_bytes_per_s=outer * ranks,
        replicas_per_domain=max(node.scaleup_domain_size // ranks, 1) if node else 1)


class KvWire(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and sender share of a KV transfer between two deployments."""

    bytes_per_token: float              # on the wire, repeated heads included
    bytes_per_request: float            # in addition: the state of recurrent layers
    source_frac: float                  # share of the ranks of the source that send


def kv_wire(source: Deployment, destination: Deployment) -> KvWire:
    """Return the bytes that give each rank of the destination its share of the KV.

    Each reads its KV heads, which tensor parallelism beyond their number repeats, so that the wire carries them as
    often: W = L max(1, TP_D / K); of MLA the whole latent, W = L TP_D. With as many ranks or more a rank reads from one
    of the source; with fewer from several, but not from two that hold the same head. Source: vLLM 0.32.0,
    vllm/distributed/kv_transfer/kv_connector/v1/nixl/tp_mapping.py; the factor as measured: 385,024 instead of 192,512
    bytes a token for Qwen3-235B at TP 8, Mooncake, docs/source/performance/sglang/sglang-benchmark-results-v1.md.
    """
    layout, heads = kv_layout(destination), destination.model.attention.num_kv_heads
    from_ranks, to_ranks = source.parallelism.tensor_parallel, destination.parallelism.tensor_parallel
    senders = from_ranks
    if from_ranks > to_ranks:
        senders = min(to_ranks * max(min(from_ranks, heads) // to_ranks, 1), from_ranks)
    return KvWire(
        bytes_per_token=layout.bytes_per_token * to_ranks, source_frac=senders / from_ranks,
        bytes_per_request=layout.state_bytes_per_sequence * to_ranks)
