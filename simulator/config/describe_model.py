"""Counts that follow from a model: its layers by kind, weights by part, KV and states, FLOPs of a token."""
from collections import Counter
from collections.abc import Iterator

from simulator.domain.dtypes import DTYPE_BITS
from simulator.domain.layer_list import Layer, PlacedMixer
from simulator.domain.layers.mixers import Mixer
from simulator.domain.model_spec import ModelSpec
from simulator.domain.server_defaults.vllm import is_glm_5

LISTED = 4              # numbers of layers shown one by one
NAME = 34               # columns at least


def derived_lines(model: ModelSpec) -> list[str]:
    """Return a line for each count: its name, value and unit."""
    rows = [*_layers(model), *_weights(model), *_kept(model), *_work(model)]
    width = max(NAME, *(len(name) + 1 for name, _ in rows))
    return [f"{name:{width}}{value}" for name, value in rows]


def _layers(model: ModelSpec) -> Iterator[tuple[str, str]]:
    for layer, numbers in model.kinds.items():
        yield f"layers {_span(numbers)}", f"{len(numbers)} x {_words(layer)}"


def _span(numbers: tuple[int, ...]) -> str:
    """Return numbers of layers in few words: 0-2; 3-47, each 4; or the first few."""
    first, step = numbers[0], numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if numbers == tuple(range(first, numbers[-1] + 1, step)):
        if len(numbers) == 1:
            return str(first)
        return f"{first}-{numbers[-1]}" if step == 1 else f"{first}-{numbers[-1]}, each {step}"
    listed = ", ".join(map(str, numbers[:LISTED]))
    return f"{listed}, ..." if len(numbers) > LISTED else listed


def _words(layer: Layer) -> str:
    mixers = [_mixer_words(mixer) for mixer in layer.mixers]
    networks = [f"{part.num_experts} experts" if part.has_experts else part.title for part in layer.networks]
    return " + ".join(f"{count} {part}" if count > 1 else part
                      for part, count in Counter([*mixers, *networks]).items()) or "norms alone"


def _mixer_words(mixer: PlacedMixer) -> str:
    window = f", {'chunks' if mixer.chunked else 'the last'} {mixer.window} tokens" if mixer.window else ""
    return f"{mixer.part.kind}{window}"


def _weights(model: ModelSpec) -> Iterator[tuple[str, str]]:
    counts = weights_by_part(model)
    for part, count in counts.items():
        yield f"weights of {part}", f"{count:_}"
    yield f"weights of the {'decoder' if model.is_causal else 'encoder'}", f"{counts.total():_}"
    if model.vision_parameters:
        yield "weights of tower and projector", f"{model.vision_parameters:_}"


def weights_by_part(model: ModelSpec) -> Counter:
    """Return the weights of the decoder by kind of part; their sum is all."""
    width, counts = model.hidden_size, Counter()
    for layer, numbers in model.kinds.items():
        parts = [(mixer.part.kind, mixer.part) for mixer in layer.mixers]
        parts += [(part.title, part) for part in layer.networks]
        for name, part in [*parts, *((part.title, part) for part in layer.around)]:
            counts[name] += len(numbers) * part.num_parameters(width)
    for part in dict.fromkeys(part for layer in model.kinds for part in layer.around):
        counts[part.title] += part.head_parameters(width)
    norms = 1 + model.embedding_norm + sum(layer.norms for layer in model.layers)
    counts.update({each.title.removeprefix("the "): each.num_parameters(width) for each in model.embeddings})
    counts.update({"embedding": model.embedding_parameters, "output head": model.lm_head_parameters,
                   "pooler": model.pooler_parameters,
                   "learned positions": model.position_parameters, "norms": norms * model.norm_parameters})
    return Counter({name: count for name, count in counts.items() if count})


def _kept(model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield the KV cache and the states of a sequence, with kv_cache_dtype = "auto"."""
    elsewhere, blackwell = (list(_cache(model, *case)) for case in _cases(model))
    yield from elsewhere
    if blackwell != elsewhere:
        yield from ((f"{name}, on B200 and B300", value) for name, value in blackwell if (name, value) not in elsewhere)


def _cases(model: ModelSpec) -> Iterator[tuple[str, bool]]:
    """Yield format and packing of the cache: of cards in general, and of compute capability 10.x."""
    declared = model.quantization.kv_cache_dtype if model.quantization else None
    for is_blackwell in (False, True):
        by_engine = "fp8" if is_blackwell and is_glm_5(model) else None
        yield declared or by_engine or model.kernel_cache or model.dtype, not is_blackwell


def _cache(model: ModelSpec, dtype: str, is_packed: bool) -> Iterator[tuple[str, str]]:
    element_bytes, activation_bytes = DTYPE_BITS[dtype] / 8, DTYPE_BITS[model.dtype] / 8
    growing, windows, rings, states = 0.0, Counter(), Counter(), 0.0
    for mixer, count in model.placed_mixers:
        states += count * mixer.part.state_bytes(activation_bytes)
        kept = count * mixer.part.token_bytes(element_bytes, is_packed)
        if mixer.window:
            windows[mixer.window] += kept
        else:
            growing += kept
        for tokens, token_bytes in mixer.part.own_windows(element_bytes):
            windows[tokens] += count * token_bytes
        for tokens, token_bytes in mixer.part.rings:
            rings[tokens] += count * token_bytes
    if not model.is_causal:
        yield "KV of a token", "none: a text is computed whole"
        return
    by = "" if dtype == model.dtype else " by auto"
    yield f"KV of a token, {dtype}{by}", f"{growing:.10g} bytes"
    for window, kept in windows.items():
        yield f"KV of the last {window} tokens, each", f"{kept:.10g} bytes"
    for tokens, kept in rings.items():
        yield f"rings of the last {tokens} tokens, each", f"{kept:.10g} bytes"
    if states:
        yield "states of a sequence", f"{states:.10g} bytes"


def _work(model: ModelSpec) -> Iterator[tuple[str, str]]:
    width, context = model.hidden_size, 0.0
    active = model.vocab_size * width
    for layer, numbers in model.kinds.items():
        parts = [mixer.part for mixer in layer.mixers] + list(layer.dense_networks)
        active += len(numbers) * sum(part.matrix_parameters(width) for part in parts)
        if (moe := layer.moe) is not None:
            shared = sum(part.matrix_parameters(width) for part in moe.dense_parts)
            active += len(numbers) * (moe.computed_per_token * moe.expert_matrix_parameters(width) + shared)
    for mixer, count in model.placed_mixers:
        context += count * _context_flops(mixer.part, mixer.window)
    yield "matrix weights that a token uses", f"{active:_.0f}"
    yield "FLOPs of a token in products", f"{2 * active:.4g}"
    if model.is_causal:
        yield "decode FLOPs per token of context", f"{context:.4g}"


def _context_flops(part: Mixer, window: int) -> float:
    """Return the FLOPs of a decode per token of its context, where it reads all of it."""
    if part.backend == "state" or window:
        return 0.0
    return sum(each.decode_flops for each in part.passes(1) if not each.window)
