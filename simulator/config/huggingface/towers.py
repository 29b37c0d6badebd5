"""Shapes and weights of vision towers, by family, from the vision_config of a config.json.

Defaults and structure: huggingface/transformers, models/<family>/configuration_<family>.py and modeling_<family>.py;
the counts agree with the classes built there. Which matrices tensor-parallel ranks split (`split`): vLLM 0.33.0,
vllm/model_executor/models/<family>.py, with mm_encoder_tp_mode = "weights", its default.
"""
from typing import NamedTuple

from simulator.config.huggingface.keys import Key, Keys


class Found(NamedTuple):
    """Weights of a tower and projector, and the fields of its `Tower`."""

    parameters: int
    tower: dict


def linear(inputs: int, outputs: int, bias: bool = True) -> int:
    """Count the weights of a linear layer."""
    return inputs * outputs + outputs * bias


class Blocks(NamedTuple):
    """Equal transformer blocks."""

    num_layers: int
    width: int
    inner: int
    heads: int
    gated: bool = False
    bias: bool = True

    @property
    def matrices(self) -> int:
        """Weights of the matrices of all blocks, with the biases that are split with them."""
        first = 2 if self.gated else 1
        split_biases = 3 * self.width + first * self.inner
        block = 4 * self.width ** 2 + (1 + first) * self.width * self.inner + self.bias * split_biases
        return self.num_layers * block

    @property
    def plain(self) -> int:
        """Weights of the biases that are whole on every rank: those of the last products."""
        return self.num_layers * 2 * self.width * self.bias

    def found(self, kind: str, beside: int, projector: int, split: int = 0, **more) -> Found:
        """Return the tower.

        beside : weights beside blocks and the matrices of the projector. projector : weights of the matrices that a
        token passes. split : those, and others, that ranks split beside the blocks.
        """
        shape = {"kind": kind, "num_layers": self.num_layers, "width": self.width, "intermediate_size": self.inner,
                 "num_heads": self.heads, "gated": self.gated, "projector": projector,
                 "split_parameters": self.matrices + split}
        return Found(self.matrices + self.plain + beside + projector, shape | more)


def qwen2_vl(keys: Keys, hidden: int, _: Keys) -> Found:
    """Qwen2-VL: blocks with LayerNorms; four patches become a token."""
    width = keys.number(Key("embed_dim", 1280))
    ratio = keys.get("mlp_ratio", 4)
    if type(ratio) not in (int, float) or not 0 < ratio <= 1024:
        keys.fault("mlp_ratio", f"expected a number above 0, found {ratio!r}")
        ratio = 1
    blocks = Blocks(keys.number(Key("depth", 32)), width, int(width * ratio), keys.number(Key("num_heads", 16)))
    return _qwen2(keys, blocks, hidden, norm=2)


def qwen2_5_vl(keys: Keys, hidden: int, _: Keys) -> Found:
    """Qwen2.5-VL: gated blocks with RMSNorms, most with attention in windows."""
    width, inner = keys.number(Key("hidden_size", 3584)), keys.number(Key("intermediate_size", 3420))
    blocks = Blocks(keys.number(Key("depth", 32)), width, inner, keys.number(Key("num_heads", 16)), gated=True)
    full = keys.get("fullatt_block_indexes", [7, 15, 23, 31])
    if not isinstance(full, list):
        keys.fault("fullatt_block_indexes", f"expected a list of layers, found {full!r}")
        full = []
    window = keys.number(Key("window_size", 112)) // keys.number(Key("patch_size", 14))
    return _qwen2(keys, blocks, keys.number(Key("out_hidden_size", hidden)), norm=1, window=window ** 2,
                  num_full_layers=len(set(full)))


def _qwen2(keys: Keys, blocks: Blocks, out: int, norm: int, **more) -> Found:
    """Count patches, two norms a block, and the merger; `norm` : vectors of a norm."""
    width, patch = blocks.width, keys.number(Key("patch_size", 14))
    frames, merge = keys.number(Key("temporal_patch_size", 2)), keys.number(Key("spatial_merge_size", 2))
    merged = merge * merge * width
    patches = linear(_channels(keys) * frames * patch * patch, width, bias=False)
    beside = patches + (2 * blocks.num_layers + 1) * norm * width + merged + out
    projector = merged * merged + merged * out
    return blocks.found("qwen2_vl", beside, projector, projector + merged, patch_size=patch, merge_size=merge,
                        frames=frames, **more)


def qwen3_vl(keys: Keys, hidden: int, _: Keys) -> Found:
    """Qwen3-VL and Qwen3.5: learned positions, a merger for each level in use."""
    width, inner = keys.number(Key("hidden_size", 1152)), keys.number(Key("intermediate_size", 4304))
    blocks = Blocks(keys.number(Key("depth", 27)), width, inner, keys.number(Key("num_heads", 16)))
    patch, frames = keys.number(Key("patch_size", 16)), keys.number(Key("temporal_patch_size", 2))
    merge, out = keys.number(Key("spatial_merge_size", 2)), keys.number(Key("out_hidden_size", hidden))
    levels = keys.get("deepstack_visual_indexes", [])
    if not isinstance(levels, list):
        keys.fault("deepstack_visual_indexes", f"expected a list of layers, found {levels!r}")
        levels = []
    merged, mergers = merge * merge * width, 1 + len(levels)
    beside = linear(_channels(keys) * frames * patch * patch, width)
    beside += keys.number(Key("num_position_embeddings", 2304)) * width + 4 * blocks.num_layers * width
    beside += 2 * width + 2 * merged * len(levels) + mergers * (merged + out)
    projector = mergers * (merged * merged + merged * out)
    return blocks.found("qwen3_vl", beside, projector, projector + mergers * merged, patch_size=patch,
                        merge_size=merge, frames=frames, levels=mergers)


def kimi_k25(keys: Keys, hidden: int, _: Keys) -> Found | None:
    """Kimi-K2.5's MoonViT: learned positions. None: the projector of Kimi-K3."""
    if keys.get("mm_projector_type", "patchmerger") != "patchmerger":
        return None
    width, inner = keys.number(Key("vt_hidden_size", 1152)), keys.number(Key("vt_intermediate_size", 4304))
    blocks = Blocks(keys.number(Key("vt_num_hidden_layers", 27)), width, inner,
                    keys.number(Key("vt_num_attention_heads", 16)))
    patch, merge = keys.number(Key("patch_size", 14)), _side(keys, "merge_kernel_size", 2)
    rows, columns = keys.number(Key("init_pos_emb_height", 64)), keys.number(Key("init_pos_emb_width", 64))
    merged = merge * merge * width
    beside = linear(_channels(keys) * patch * patch, width) + rows * columns * width
    beside += 4 * blocks.num_layers * width + 2 * width + 2 * width + merged + hidden
    return blocks.found("kimi_k25", beside, merged * merged + merged * hidden, patch_size=patch, merge_size=merge)


def gemma3(keys: Keys, hidden: int, model: Keys) -> Found:
    """Gemma 3: SigLIP without pooling head; a norm and a projection without bias."""
    width, inner = keys.number(Key("hidden_size", 768)), keys.number(Key("intermediate_size", 3072))
    blocks = _named(keys, width, inner, (12, 12))
    patch, image = keys.number(Key("patch_size", 16)), keys.number(Key("image_size", 224))
    tokens, side = model.number(Key("mm_tokens_per_image", 256)), image // patch
    beside = linear(_channels(keys) * patch * patch, width) + side ** 2 * width
    beside += 4 * blocks.num_layers * width + 2 * width + width
    return blocks.found("gemma3", beside, width * hidden, patch_size=patch, image_size=image, image_tokens=tokens,
                        merge_size=max(1, side // max(1, round(tokens ** 0.5))))


def gemma4(keys: Keys, hidden: int, model: Keys) -> Found:
    """Gemma 4: gated blocks with six norms; positions of rows and of columns."""
    width, inner = keys.number(Key("hidden_size", 768)), keys.number(Key("intermediate_size", 3072))
    blocks = _named(keys, width, inner, (16, 12))._replace(gated=True, bias=False)
    patch, pool = keys.number(Key("patch_size", 16)), keys.number(Key("pooling_kernel_size", 3))
    head_dim = keys.number(Key("head_dim", max(1, width // blocks.heads)))
    beside = _channels(keys) * patch * patch * width + 2 * keys.number(Key("position_embedding_size", 10240)) * width
    beside += blocks.num_layers * (4 * width + 2 * head_dim)
    tokens = model.number(Key("vision_soft_tokens_per_image", keys.number(Key("default_output_length", 280))))
    found = blocks.found("gemma4", beside, width * hidden, patch_size=patch, merge_size=pool, image_tokens=tokens)
    return found._replace(tower=found.tower | {"split_parameters": 0})     # vLLM runs the tower of transformers


def pixtral(keys: Keys, hidden: int, model: Keys) -> Found:
    """Mistral 3: Pixtral's blocks; a norm, a merger and two products."""
    width, inner = keys.number(Key("hidden_size", 1024)), keys.number(Key("intermediate_size", 4096))
    blocks = _named(keys, width, inner, (24, 16))._replace(gated=True, bias=False)
    patch, merge = keys.number(Key("patch_size", 16)), model.number(Key("spatial_merge_size", 2))
    bias = model.flag(Key("multimodal_projector_bias", False))
    beside = _channels(keys) * patch * patch * width + width + 2 * blocks.num_layers * width + width + 2 * hidden * bias
    products = width * hidden + hidden * hidden
    return blocks.found("pixtral", beside, merge * merge * width * width + products, products, patch_size=patch,
                        merge_size=merge, image_size=keys.number(Key("image_size", 1024)))


def llama4(keys: Keys, hidden: int, _: Keys) -> Found:
    """Llama 4: a class token, blocks between two norms; MLP and projection."""
    width, inner = keys.number(Key("hidden_size", 768)), keys.number(Key("intermediate_size", 5632))
    blocks = _named(keys, width, inner, (34, 16))
    patch, image = keys.number(Key("patch_size", 14)), keys.number(Key("image_size", 448))
    between, out = keys.number(Key("projector_input_dim", 4096)), keys.number(Key("projector_output_dim", 4096))
    patches = _channels(keys) * patch * patch * width
    beside = patches + width + ((image // patch) ** 2 + 1) * width + 4 * width + 4 * blocks.num_layers * width
    # pixel shuffle makes 4 x width, which is the inner width
    projector = inner * between + between * out + keys.number(Key("vision_output_dim", 7680)) * hidden
    return blocks.found("llama4", beside, projector, projector + patches, patch_size=patch, merge_size=2,
                        image_size=image)


def minimax_m3(keys: Keys, hidden: int, model: Keys) -> Found:
    """MiniMax-M3: CLIP's blocks behind a norm; an MLP a patch, and one for four."""
    width, inner = keys.number(Key("hidden_size", 1280)), keys.number(Key("intermediate_size", 5120))
    blocks = _named(keys, width, inner, (32, 16))
    patch, middle = keys.number(Key("patch_size", 14)), model.number(Key("projector_hidden_size", hidden))
    compression = keys.get("img_token_compression_config")
    pooled = Keys(compression if isinstance(compression, dict) else {}, f"{keys.file}.img_token_compression_config")
    merge, frames = pooled.number(Key("spatial_merge_size", 2)), pooled.number(Key("temporal_patch_size", 2))
    keys.faults.extend(pooled.faults)
    beside = _channels(keys) * frames * patch * patch * width + 2 * width + 4 * blocks.num_layers * width
    first, second = linear(width, middle) + linear(middle, hidden), linear(merge * merge * hidden, middle) + linear(
        middle, hidden)
    matrices = merge * merge * (width * middle + middle * hidden) + merge * merge * hidden * middle + middle * hidden
    found = blocks.found("minimax_m3", beside, first + second, patch_size=patch, merge_size=merge, frames=frames)
    return found._replace(tower=found.tower | {"projector": matrices})


def step3p7(keys: Keys, hidden: int, model: Keys) -> Found:
    """Step-3.7: blocks with layer scales; two convolutions and a projection.

    A convolution leaves a quarter of the patches and doubles the width.
    """
    width, inner = keys.number(Key("hidden_size", 1536)), keys.number(Key("intermediate_size", 8960))
    blocks = _named(keys, width, inner, (47, 16))
    patch, image = keys.number(Key("patch_size", 14)), keys.number(Key("image_size", 728))
    beside = _channels(keys) * patch * patch * width + (image // patch) ** 2 * width + 2 * width
    beside += (4 + 2) * blocks.num_layers * width + (2 + 4) * width
    beside += hidden * model.flag(Key("projector_bias", False))
    first, second, last = 9 * width * 2 * width, 9 * 2 * width * 4 * width, 4 * width * hidden
    found = blocks.found("step3p7", beside, first + second + last, last, patch_size=patch, merge_size=4,
                         image_size=image)
    # of the second convolution's four inputs, each is an output of the first
    return found._replace(tower=found.tower | {"projector": 4 * first + second + last})


def _named(keys: Keys, width: int, inner: int, defaults: tuple[int, int]) -> Blocks:
    """Return blocks under the usual names. defaults : of the number of layers, and of heads."""
    layers, heads = defaults
    return Blocks(keys.number(Key("num_hidden_layers", layers)), width, inner,
                  keys.number(Key("num_attention_heads", heads)))


def _channels(keys: Keys) -> int:
    return keys.number(Key("in_channels|in_chans|num_channels", 3))


def _side(keys: Keys, name: str, default: int) -> int:
    """Return the side of a square that is written as a number or as a pair."""
    value = keys.get(name, default)
    side = value[0] if isinstance(value, list) and value and len(set(map(repr, value))) == 1 else value
    if type(side) is not int or not 1 <= side <= 64:
        keys.fault(name, f"expected an integer from 1 to 64, or two equal ones, found {value!r}")
        return default
    return side
