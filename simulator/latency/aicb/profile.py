"""Writer of Vidur-AICB per-layer tables of any model, from the predictions of another latency backend.

The time of a component of a layer is the difference between models with two and with one such component: embedding,
output head and sampler cancel.
"""
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.layer_list import Layer, LayerParts, NamedPart, PlacedMixer
from simulator.errors import InputErrors
from simulator.latency.aicb.tables import COLUMNS, SOURCE, Layout, file_name

# Seconds of (prefill=..., decode=...), as LatencyModel.predict, communication left out.
Predict = Callable[..., float]
# Bytes of an element sent to experts / bytes of an element sent back, 16 bit: fp8 with a float32 scale for 128
# (FP8_FACTOR in aliyun/aicb at 23eec3c, workload_generator/mocked_model/inference/MockedDeepSeek.py).
DISPATCH_SHARE = (1 + 4 / 128) / 2


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Tables to write.

    build : returns the prediction function of a deployment.
    source : source of the times, written into every row.
    """

    deployment: Deployment
    build: Callable[[Deployment], Predict]
    source: str
    table_model: str
    batch_sizes: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    phases: tuple[str, ...] = ("prefill", "decode")

    def write(self, folder: str | Path) -> list[Path]:
        """Write a table per length of prompts, and per batch size and length of decodes.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        InputErrors
            A file exists already, or cannot be written.
        """
        folder, points = Path(folder), _points(self)
        paths = [folder / file_name(_layout(self, phase), size, length) for phase, size, length in points]
        present = [path for path in paths if path.exists()]
        if present:
            raise InputErrors([f"{present[0]}: exists already, as do {len(present) - 1} of {len(paths)} more"])
        components = {(kind, part): _difference(self, kind, part)
                      for kind in self.deployment.model.kinds for part in _parts(kind)}
        texts = [_text(self, components, *point) for point in points]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path, text in zip(paths, texts, strict=True):
                path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputErrors([f"{folder}: {error.strerror}"]) from error
        return paths


def reduce_bytes(tokens: int, hidden_size: int, tensor_parallel: int, element_bytes: float = 2) -> int:
    """Return the bytes of a rank's all-reduce after attention or an MLP.

    tokens x hidden size elements; 0 for a single rank.
    """
    return int(tokens * hidden_size * element_bytes) if tensor_parallel > 1 else 0


def exchange_bytes(tokens: int, hidden_size: int, experts_per_token: int, tensor_parallel: int) -> int:
    """Return the bytes that a rank sends to experts (dispatch) and back (combine).

    combine = 2 tokens k h / t, dispatch = combine x DISPATCH_SHARE, both rounded down (aliyun/aicb at 23eec3c,
    Vidur_workload_generator.py, `get_comm_size`).
    """
    combine = 2 * tokens * hidden_size * experts_per_token // tensor_parallel
    return combine + int(combine * DISPATCH_SHARE)


def _points(profile: Profile) -> list[tuple[str, int, int]]:
    """Return (phase, batch size, length) of every table; AICB's prefill is one prompt."""
    sizes = {"prefill": (1,), "decode": profile.batch_sizes}
    return [(phase, size, length) for phase in profile.phases for size in sizes[phase]
            for length in profile.sequence_lengths]


def _layout(profile: Profile, phase: str) -> Layout:
    ways = profile.deployment.parallelism
    return Layout(
        model=profile.table_model, world_size=ways.num_accelerators, tensor_parallel=ways.tensor_parallel,
        pipeline_parallel=ways.pipeline_parallel, expert_parallel=ways.expert_parallel, phase=phase)


def _parts(layer: Layer) -> list[str]:
    """Return the components of such a layer."""
    found = {"attention": layer.mixers, "mlp": layer.dense_networks, "moe": layer.moe}
    return [name for name, parts in found.items() if parts]


def _text(profile: Profile, components: dict, phase: str, size: int, length: int) -> str:
    ranks = profile.deployment.parallelism.data_parallel        # each has a batch like this
    batch = {"prefill": [(length, 0)] * ranks} if phase == "prefill" else {"decode": [length + 1] * (size * ranks)}
    times_ns = {key: max(1, round(predict(**batch) * 1e9)) for key, predict in components.items()}
    tokens = length if phase == "prefill" else size
    rows = [[layer, part, times_ns[kind, part], _comm_bytes(profile.deployment, part, tokens), profile.source]
            for layer, kind in enumerate(profile.deployment.model.layers) for part in _parts(kind)]
    return "".join("\t".join(map(str, row)) + "\n" for row in [[*COLUMNS, SOURCE], *rows])


def _comm_bytes(deployment: Deployment, part: str, tokens: int) -> int:
    """Return comm_size; experts that are split by width (ep 1) end in an all-reduce, as does an MLP."""
    model, ways = deployment.model, deployment.parallelism
    if part == "moe" and ways.expert_parallel > 1:
        return exchange_bytes(tokens, model.hidden_size, model.moe.experts_per_token, ways.tensor_parallel)
    return reduce_bytes(tokens, model.hidden_size, ways.tensor_parallel, deployment.activation_bytes)


def _difference(profile: Profile, kind: Layer, part: str) -> Predict:
    """Return the prediction of one component alone."""
    one, two = (profile.build(_only(profile.deployment, kind, part, count)) for count in (1, 2))
    return lambda **batch: two(**batch) - one(**batch)


def _only(deployment: Deployment, layer: Layer, part: str, count: int) -> Deployment:
    """Return the deployment with `count` layers of one component only."""
    norms, has_both = layer.norms, layer.mixers and layer.networks
    if has_both:                                    # a whole layer's norms: half before each component
        norms = (norms + (part == "attention")) // 2
    chosen = {"attention": layer.mixers, "mlp": layer.dense_networks, "moe": (layer.moe,)}[part]
    parts = {f"part_{i}": _named(each) for i, each in enumerate(chosen)}
    model = replace(
        deployment.model, num_layers=count, layer_pattern="F", norms_per_layer=norms, moe_layer_interval=1,
        first_dense_layers=0, dense_mlp_beside_moe=False, parts=parts,
        layer_kinds=(LayerParts(layers=tuple(range(count)), parts=tuple(parts)),))
    return replace(deployment, model=model, parallelism=replace(deployment.parallelism, pipeline_parallel=1))


def _named(part) -> NamedPart:
    """Return a part of a layer as [parts] has it."""
    if isinstance(part, PlacedMixer):
        return NamedPart(mixer=part.part, window=part.window, chunked=part.chunked)
    return NamedPart(moe=part) if part.has_experts else NamedPart(mlp=part)
