"""Decodes that FlashAttention 2 computes in a call with prompts: a law of the kernel.

Each head of each decode is a tile of ROWS queries, of which one is used, over the whole context
(vllm-project/flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h: kBlockM = 64 of the kernel for paged
caches). So the time is the longest of three:

- arithmetic of all tiles, at the rate of long prompts on the same card: the same kernel. A tile costs EXTRA_TOKENS of
  context to begin and end, and reaches SHARE_OF_RATE of that rate.
- memory traffic: heads that share a KV head read it once only if they run together, or if the caches of all decodes for
  one KV head fit into L2. Cores compute one tile at a time, two on cards with 164 KB of shared memory a core, all
  decodes of a head first.
- one tile on one core, less the prompts beside it.

Numbers and check: LLMServingSim at 5daddb2, attention.csv, vLLM 0.19.0. With those that RTX PRO 6000 gives alone (0.9,
200) mixed batches of RTX 4090 are 12 % off in the mean, bias -0.3 %; with those of the RTX 4090 (0.9, 150) RTX PRO
6000's are 10 % off, -6.3 %. Factors on the time of decodes alone, from one of the cards, are 16 % (-15 %) and 23 %
(+21 %) off on the other, as its arithmetic and its memory have another ratio. An A100's differs by as much again.
"""
import numpy as np

from simulator.domain.server_defaults.cards import as_card

ROWS = 64
EXTRA_TOKENS, SHARE_OF_RATE = 200.0, 0.9
SHARE_OF_BANDWIDTH = 0.92
LONG_PROMPT, PROMPT_BESIDE = 8192.0, 1024.0     # tokens
TWO_TILES = (8, 0)                              # compute capability of cores that hold two tiles


def unsplit_ns(composer, kind, sequences: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Return the time of one layer by sequences and contexts.

    composer : Composer. kind : of attention, see attention.py.
    """
    part, window = kind.decode_shape()
    card, element = composer.deployment.accelerator, composer.deployment.kv_cache_bytes
    seen = np.minimum(contexts, window) if window else contexts
    rate, count = kind.prompt_rate(LONG_PROMPT), sequences[:, None]
    tile_ns = ROWS * 4 * part.head_dim * (seen + EXTRA_TOKENS) / SHARE_OF_RATE / rate
    head_bytes = count * seen * 2 * part.head_dim * element
    bandwidth = card.memory_bandwidth_bytes_per_s * 1e-9 * SHARE_OF_BANDWIDTH
    traffic_ns = head_bytes * part.num_heads / _together(card, part, count, head_bytes) / bandwidth
    beside_ns = 2 * part.num_heads * part.head_dim * PROMPT_BESIDE ** 2 / kind.prompt_rate(PROMPT_BESIDE)
    alone_ns = tile_ns * card.num_cores - beside_ns if card.num_cores else np.zeros(len(seen))
    return np.where(count > 0, np.maximum(np.maximum(count * part.num_heads * tile_ns, traffic_ns), alone_ns), 0.0)


def _together(card, part, count: np.ndarray, head_bytes: np.ndarray) -> np.ndarray:
    """Return how many heads share one reading of their KV head."""
    group = part.num_heads / part.num_kv_heads
    if not card.num_cores:
        return np.full(head_bytes.shape, group)
    tiles = card.num_cores * (2 if as_card(card).capability == TWO_TILES else 1)
    running = np.clip(tiles // np.maximum(count, 1), 1, group)
    return np.where(head_bytes <= card.l2_cache_bytes, group, running)
