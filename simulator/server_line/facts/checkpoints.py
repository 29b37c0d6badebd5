"""Facts of a checkpoint that an engine reads: by its hub name (models/, engines/checkpoints.toml), or a folder."""
import json
import re
from functools import cache
from pathlib import Path

import msgspec
import tomli

from simulator.config.huggingface.formats import kv_cache_dtype, stated_method, stated_table, unnested
from simulator.config.huggingface.reader import read_config
from simulator.domain.facts import hub_ids, load_model, names, shipped
from simulator.domain.hub_names import Format, bare, format_of, plain
from simulator.domain.model_spec import ModelSpec
from simulator.errors import InputErrors, did_you_mean

BIDIRECTIONAL = ("gemma3", "gemma4")                # model types of which image tokens see each other
KV_ALGORITHMS = {"fp8": "FP8", "fp4": "NVFP4"}      # ModelOpt's names of formats of the KV cache


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Recurrent state of one linear layer of a hybrid, in elements.

    conv_channels : of all ranks. conv_kernel : taps. matrices : heads x key x value elements of all ranks.
    """

    conv_channels: int
    conv_kernel: int
    matrices: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint's facts.

    hub_id : as written. model : name in models/, None: none is. architecture : of config.json. max_len : the model's
    longest text, rope scaling in. window : of a model with sliding layers alone. head_size : of the KV cache, for
    latent attention rank and rope. stored : name of the storage format for [model] dtype, None: plain or the model's
    own. method : config.json's quant_method. kv_algorithm : ModelOpt's for the KV cache. vision : layers and width of
    the tower. bidirectional_images : image tokens see each other.
    """

    hub_id: str
    model: str | None = None
    spec: ModelSpec | None = None
    architecture: str
    model_type: str = ""
    dtype: str = "bfloat16"
    max_len: int
    window: int | None = None
    has_windows: bool = False
    num_heads: int
    num_kv_heads: int
    head_size: int
    num_layers: int
    num_experts: int = 0
    is_latent: bool = False
    is_sparse: bool = False
    has_sinks: bool = False
    state: State | None = None
    num_mtp_layers: int = 0
    is_multimodal: bool = False
    vision: tuple[int, int] | None = None
    bidirectional_images: bool = False
    is_pooling: bool = False
    method: str | None = None
    stored: str | None = None
    kv_algorithm: str | None = None
    attention_only_scheme: str | None = None

    @property
    def is_hybrid(self) -> bool:
        """Whether some layers keep a recurrent state."""
        return self.state is not None


@cache
def _table() -> dict:
    return tomli.loads((shipped("engines") / "checkpoints.toml").read_text(encoding="utf-8"))


def checkpoint_of(name: str, folder: str | None = None) -> Checkpoint:
    """Return a checkpoint's facts.

    Parameters
    ----------
    name : on the hub, or a folder with config.json.
    folder : with config.json, which is believed in place of the name.

    Raises
    ------
    InputErrors
        A name of no known model, or a folder that does not describe one.
    """
    path = Path(folder or name).expanduser()
    if folder is not None or (path / "config.json").is_file():
        return _of_folder(path, name)
    described = next((row for hub_id, row in _table()["checkpoints"].items() if plain(hub_id) == plain(name)), None)
    if described is not None:
        return msgspec.convert(described | {"hub_id": name}, Checkpoint)
    found = _file_of(name)
    if found is None:
        raise InputErrors([_unknown(name)])
    return _of_spec(found, load_model(found), name)


def _unknown(name: str) -> str:
    near = did_you_mean(bare(name), {bare(hub_id): None for hub_id in hub_ids()})
    near = "" if near.startswith("; valid") else near
    return (f"{name}: its shape is not known here{near}; give --config FOLDER with its config.json (and "
            "hf_quant_config.json), the authority on it")


def _file_of(name: str) -> str | None:
    """Return the file in models/ of a hub name: with its format if there is such a file, else without."""
    by_name = {plain(hub_id): stem for hub_id, stem in hub_ids().items()} | {stem: stem for stem in names("model")}
    if plain(name) in by_name:
        return by_name[plain(name)]
    by_bare = {}
    for stem in names("model"):
        if format_of(stem) is None:
            by_bare.setdefault(bare(stem), stem)
    for hub_id, stem in hub_ids().items():
        if format_of(hub_id) is None:
            by_bare.setdefault(bare(hub_id), stem)
    return by_bare.get(bare(name))


def _of_spec(stem: str, spec: ModelSpec, name: str) -> Checkpoint:
    form = format_of(name)
    own = spec.quantization
    fields = _shape(spec) | {"hub_id": name, "model": stem, "max_len": _length(name, spec)}
    if form is not None:
        fields |= _formatted(form, own)
    elif own is not None:
        fields |= {"method": _method(own.method), "kv_algorithm": _algorithm(own)}
    if _drops_window(name):
        fields |= {"window": None, "has_windows": False}
    return Checkpoint(**fields)


def _formatted(form: Format, own) -> dict:
    kept = own is not None and own.method.split("-")[0] == form.method.split("_")[0].split("-")[0]
    return {"method": form.method, "kv_algorithm": form.kv_algorithm, "stored": None if kept else form.stored,
            **({"dtype": form.dtype} if form.dtype else {})}


def _method(method: str) -> str:
    return method


def _algorithm(own) -> str | None:
    return "FP8" if own.method == "modelopt" and own.kv_cache_dtype == "fp8" else None


def _length(name: str, spec: ModelSpec) -> int:
    for row in _table()["lengths"]:
        if re.fullmatch(row["name"], plain(name)):
            return row["max_len"]
    return spec.max_position_embeddings


def _drops_window(name: str) -> bool:
    return any(re.fullmatch(row, plain(name)) for row in _table()["without_window"])


def _shape(spec: ModelSpec) -> dict:
    attention, types = spec.attention, set(spec.layer_types)
    latent = attention.backend == "mla"
    slides = spec.sliding_attention
    tower = spec.vision
    return {
        "spec": spec, "architecture": spec.architecture, "model_type": spec.model_type,
        "is_multimodal": spec.vision_parameters > 0,
        "bidirectional_images": spec.model_type in BIDIRECTIONAL,
        "vision": tower and (tower.num_layers, tower.width),
        "dtype": spec.dtype, "num_heads": attention.num_heads, "num_layers": spec.num_layers,
        "num_kv_heads": attention.num_kv_heads,
        "head_size": sum(attention.cached_widths) if latent else attention.head_dim,
        "num_experts": spec.moe.num_experts if spec.moe else 0,
        "is_latent": latent, "is_sparse": latent and attention.indexer is not None,
        "has_sinks": attention.sinks, "num_mtp_layers": spec.num_mtp_layers,
        "window": slides.window if slides and types == {"sliding_attention"} else None,
        "has_windows": slides is not None, "state": _state(spec)}


def _state(spec: ModelSpec) -> State | None:
    linear = spec.linear_attention
    if linear is None:
        return None
    channels, taps = linear.convolution
    return State(conv_channels=channels, conv_kernel=taps, matrices=linear.state_elements - channels * (taps - 1))


def _of_folder(path: Path, name: str) -> Checkpoint:
    spec = read_config(path)
    file = path / "config.json" if path.is_dir() else path
    beside = file.with_name("hf_quant_config.json")
    table, more = (json.loads(each.read_text(encoding="utf-8-sig")) if each.is_file() else None
                   for each in (file, beside))
    stated = unnested(stated_table(table, more) or {})
    method = stated_method(stated) if stated else None
    fields = _shape(spec) | {
        "hub_id": name, "max_len": spec.max_position_embeddings,
        "is_multimodal": isinstance(table.get("vision_config"), dict),
        "method": _server_method(method, stated),
        "kv_algorithm": KV_ALGORITHMS.get(kv_cache_dtype(stated, method)) if method == "modelopt" else None}
    return Checkpoint(**fields)


def _server_method(method: str | None, stated: dict) -> str | None:
    """Return the method by the name that vLLM gives it: one for each family of ModelOpt's algorithms."""
    if method != "modelopt":
        return method
    algorithm = str(stated.get("quant_algo")).upper()
    families = {"MIXED_PRECISION": "modelopt_mixed", "MXFP8": "modelopt_mxfp8"}
    return families.get(algorithm, "modelopt_fp4" if "FP4" in algorithm else "modelopt")
