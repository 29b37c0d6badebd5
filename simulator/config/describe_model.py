"""Counts that follow from a model: its layers by kind, weights by part, KV and states, FLOPs of a token."""
from collections import Counter
from collections.abc import Iterator

from simulator.domain.dtypes import DTYPE_BITS
from simulator.domain.layer_list import Layer, PlacedMixer
from simulator.domain.layers.mixers import Mixer
from simulator.domain.model_spec import ModelSpec

LISTED = 4              # numbers of layers shown one by one
NAME = 34               # columns


def derived_lines(model: ModelSpec) -> list[str]:
    """Return a line for each count: its name, value and unit."""
    return [f"{name:{NAME}}{value}" for name, value in
            [*_layers(model), *_weights(model), *_kept(model), *_work(model)]]


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
    networks = [f"{part.num_experts} experts" if part.has_experts else "MLP" for part in layer.networks]
    return " + ".join(f"{count} {part}" if count > 1 else part
                      for part, count in Counter([*mixers, *networks]).items()) or "norms alone"


def _mixer_words(mixer: PlacedMixer) -> str:
    window = f", {'chunks' if mixer.chunked else 'the last'} {mixer.window} tokens" if mixer.window else ""
    return f"{mixer.part.kind}{window}"


def _weights(model: ModelSpec) -> Iterator[tuple[str, str]]:
    width = model.hidden_size
    counts = Counter()
    for layer, numbers in model.kinds.items():
        for mixer in layer.mixers:
            counts[mixer.part.kind] += len(numbers) * mixer.part.num_parameters(width)
        for part in layer.networks:
            counts["experts" if part.has_experts else "MLP"] += len(numbers) * part.num_parameters(width)
    counts |= {"embedding": model.embedding_parameters, "output head": model.lm_head_parameters}
    counts["norms and the rest"] = model.num_parameters - counts.total()
    for part, count in counts.items():
        yield f"weights of {part}", f"{count:_}"
    yield "weights of the decoder", f"{model.num_parameters:_}"
    if model.vision_parameters:
        yield "weights of tower and projector", f"{model.vision_parameters:_}"


def _kept(model: ModelSpec) -> Iterator[tuple[str, str]]:
    element_bytes = DTYPE_BITS[model.dtype] / 8
    growing, windows, states = 0.0, Counter(), 0.0
    for mixer, count in model.placed_mixers:
        states += count * mixer.part.state_bytes(element_bytes)
        kept = count * mixer.part.token_bytes(element_bytes)
        if mixer.window:
            windows[mixer.window] += kept
        else:
            growing += kept
    yield f"KV of a token, {model.dtype}", f"{growing:.10g} bytes"
    for window, kept in windows.items():
        yield f"KV of the last {window} tokens, each", f"{kept:.10g} bytes"
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
    yield "decode FLOPs per token of context", f"{context:.4g}"


def _context_flops(part: Mixer, window: int) -> float:
    """Return the FLOPs of a decode per token of its context, where it reads all of it."""
    if part.backend == "state" or window:
        return 0.0
    return sum(each.decode_flops for each in part.passes(1) if not each.window)
