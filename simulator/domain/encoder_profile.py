"""Memory of a vision tower in vLLM's profile run, which encodes images or a video before the model runs.

Source: vLLM 0.10.1, 0.32.0 and 0.33.0, vllm/v1/worker (profile_run) and vllm/multimodal/encoder_budget.py
(MultiModalBudget): as many items of the largest size as its budget has room for, max_num_batched_tokens or the largest
item, run through the tower at once; their embeddings stay until the model's own forward pass is over. The sizes of
items are those of vllm/model_executor/models/<family>.py. No start-up log is known with both peaks apart: the
tower's is the size of its tensors, as kernels without copies would have them.
"""
import msgspec

from simulator.domain import media
from simulator.domain.deployment import Deployment
from simulator.domain.towers import Tower, View, amounts

UNLIMITED = 999                 # items of a kind in a prompt, limit_per_prompt's default
LARGEST_SIDE = 3000             # pixels: Kimi's dummy image (vllm/model_executor/models/kimi_k25.py), Step's largest
QWEN_SIDE = 3584                # 12,845,056 pixels, Qwen2-VL's largest area
QWEN3_SIDE = 4096
QWEN_FRAMES = 14                # of a dummy video (_MAX_FRAMES_PER_VIDEO of qwen2_vl.py)
MINIMAX_SIDE = 672
GEMMA4_FRAMES = 32              # with two separators and a time stamp of six tokens each


class ItemLimits(msgspec.Struct, frozen=True):
    """Items that prompts may have, by kind, and whether the profile run encodes any."""

    images: int = UNLIMITED
    videos: int = UNLIMITED
    is_profiled: bool = True

    def is_text_only(self, tower: Tower | None) -> bool:
        """Whether no item that a tower takes is allowed, so that it is not loaded.

        tower : None: of unknown shape, or none.
        """
        return not (self.images or (self.videos and (tower is None or tower.kind in media.VIDEOS)))


class EncoderPeak(msgspec.Struct, frozen=True):
    """Bytes of a rank that holds the tower.

    peak_bytes : while items are encoded. embedding_bytes : of it, embeddings that stay during the forward pass.
    """

    peak_bytes: float = 0.0
    embedding_bytes: float = 0.0

    def beyond(self, forward_bytes: float) -> float:
        """Return the bytes by which this raises the peak of a forward pass."""
        return max(self.peak_bytes - forward_bytes, self.embedding_bytes)


NOTHING = EncoderPeak()


def encoder_peak(deployment: Deployment, limits: ItemLimits, batch: tuple[int, int], max_model_len: int) -> EncoderPeak:
    """Return the memory of encoding the items of the profile run.

    Nothing, if the model has no tower of known shape.

    Of each patch there are its pixels, the residual, the normed input of a part, and the widest part: q, k, v and the
    output of attention, or both sides of an MLP's activation. Heads and MLPs are divided among tensor-parallel ranks,
    where the family divides them.

    batch : max_num_batched_tokens and max_num_seqs.
    """
    tower, element = deployment.model.vision, deployment.activation_bytes
    if tower is None or not limits.is_profiled or limits.is_text_only(tower):
        return NOTHING
    item, most = largest_item(tower, limits, max_model_len)
    tokens, requests = batch
    count = max(1, min(tokens // item.tokens, requests * max(1, min(most, max_model_len // item.tokens))))
    ranks = deployment.parallelism.tensor_parallel if tower.split_parameters else 1
    pixels = 3 * tower.frames * tower.patch_size ** 2
    widest = max(4 * tower.width, (3 if tower.gated else 2) * tower.intermediate_size) / ranks
    embeddings = count * item.tokens * tower.levels * deployment.model.hidden_size * element
    patches = count * amounts(item.views)[0]
    return EncoderPeak(patches * (pixels + 2 * tower.width + widest) * element, embeddings)


def largest_item(tower: Tower, limits: ItemLimits, max_model_len: int) -> tuple[media.Encoded, int]:
    """Return the item with most tokens, and how many of its kind a prompt may have."""
    found = []
    if limits.images:
        found.append((media.image(tower, *_image_sides(tower)), limits.images))
    if limits.videos and (video := _video(tower, max_model_len)) is not None:
        found.append((video, limits.videos))
    return max(found, key=lambda pair: pair[0].tokens, default=(media.Encoded(0, ()), 0))


def _image_sides(tower: Tower) -> tuple[int, int]:
    if tower.kind == "llama4":                  # tiles in one column
        return media.MOST_TILES * tower.image_size, tower.image_size
    sides = {"qwen2_vl": QWEN_SIDE, "qwen3_vl": QWEN3_SIDE, "kimi_k25": LARGEST_SIDE, "step3p7": LARGEST_SIDE + 24,
             "minimax_m3": MINIMAX_SIDE}
    side = sides.get(tower.kind) or tower.image_size or QWEN_SIDE
    return side, side


def _video(tower: Tower, max_model_len: int) -> media.Encoded | None:
    """Return the dummy video of a family with videos larger than its images; None: there is none."""
    if tower.kind == "gemma4":
        patches = media.FEWEST_TOKENS * tower.merge_size ** 2
        return media.Encoded(GEMMA4_FRAMES * (media.FEWEST_TOKENS + 8), (View(patches, GEMMA4_FRAMES),))
    if tower.kind != "qwen2_vl":
        return None
    whole = media.image(tower, QWEN_SIDE, QWEN_SIDE)
    pairs = max(1, min(-(-QWEN_FRAMES // tower.frames), max_model_len // whole.tokens))
    return media.Encoded(whole.tokens * pairs, tuple(view._replace(count=pairs) for view in whole.views))
