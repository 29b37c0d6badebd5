"""The models and accelerators that BLIS's commands name, as ours.

BLIS calls a model by its id on the Hugging Face hub in lower case, quantised ones by the id of the quantised copy. Any
model of models/*.toml can be named, by the id that stands there or by our own name. Files given by
--model-config-folder and --hardware-config are turned into files of facts.
"""
import json
import re
from functools import cache
from pathlib import Path

import tomli
import tomli_w

from simulator.domain import facts

UNLIMITED = 10**6               # no context length is given: no request is so long
ACCELERATORS = {"H100": "h100-sxm-80gb", "A100-SXM": "a100-sxm-80gb", "A100-80": "a100-sxm-80gb", "L40S": "l40s"}
# Behind the name of a quantised copy: the format of the weights.
_QUANTISED = re.compile(r"(?:[-_.]quantized)?[-_.](fp8|w\d+a\d+|nvfp4|int4|int8|awq|gptq)(?:[-_.].*)?$")
_WEIGHTS = {"fp8": "fp8", "nvfp4": "fp4", "awq": "int4", "gptq": "int4", "int4": "int4", "int8": "int8",
            "w4": "int4", "w8": "int8"}


@cache
def catalogue():
    """Return {name in lower case: our name}, of every hub id, its part behind the slash, and our own names."""
    names = {}
    for path in sorted(Path(facts.folder("model")).glob("*.toml")):
        found = _QUANTISED.search(path.stem)
        if found and path.stem[:found.start()] in facts.names("model"):
            continue            # BLIS takes the base model and the format that its name ends with
        hub_id = tomli.loads(path.read_text(encoding="utf-8")).get("hf_id", path.stem).lower()
        names |= {hub_id: path.stem, hub_id.rpartition("/")[2]: path.stem}
    return names | {name: name for name in names.values()}


def model_named(name):
    """Return our name of a model, and the format of its weights, None: as in our file.

    Raises
    ------
    LookupError
        No model of ours has that name.
    """
    known, lower = catalogue(), name.lower()
    bare = lower.rpartition("/")[2]
    for each in (lower, bare):
        if each in known:
            return known[each], None
    found = _QUANTISED.search(bare)
    base = bare[:found.start()] if found else bare
    base = base.removeprefix("meta-")
    for each in (base, base.removesuffix("-instruct"), f"{base}-instruct", f"{base}-it"):
        if each in known:
            return known[each], found and _WEIGHTS[found[1] if found[1] in _WEIGHTS else found[1][:2]]
    raise LookupError(f"--model {name}: no file in models/ stands for it")


def accelerator_named(name):
    """Return our name of an accelerator."""
    if name not in ACCELERATORS:
        raise LookupError(f"--hardware {name}: no file in hardware/ stands for it; known: {', '.join(ACCELERATORS)}")
    return ACCELERATORS[name]


def write_model(config, folder):
    """Write the facts of a dense model's config.json; return the path."""
    given = json.loads(config.read_bytes())
    experts = {"num_local_experts", "num_experts", "n_routed_experts"} & given.keys()
    if experts:
        raise LookupError(f"{config}: experts are not read here: {', '.join(sorted(experts))}")
    heads, width = given["num_attention_heads"], given["hidden_size"]
    return _write(folder / "given_model.toml", {
        "num_layers": given["num_hidden_layers"], "hidden_size": width, "vocab_size": given["vocab_size"],
        "max_position_embeddings": given.get("max_position_embeddings", UNLIMITED),
        "dtype": given.get("torch_dtype", given.get("dtype", "bfloat16")),
        "attention": {"kind": "multi_head", "num_heads": heads, "head_dim": given.get("head_dim", width // heads),
                      "num_kv_heads": given.get("num_key_value_heads", heads)},
        "mlp": {"intermediate_size": given["intermediate_size"]}})


def write_accelerator(config, name, folder):
    """Write the facts of an accelerator of a hardware_config.json; return the path, and its two shares of the peak."""
    given = json.loads(config.read_bytes())[name]
    rates = {"bfloat16": given["TFlopsPeak"] * 1e12, "float16": given["TFlopsPeak"] * 1e12,
             "fp8": given.get("TFlopsFP8", 0) * 1e12}
    path = _write(folder / "given_accelerator.toml", {
        "memory_bytes": max(1, round(given.get("MemoryGiB", 0) * 2**30)),
        "memory_bandwidth_bytes_per_s": given["BwPeakTBs"] * 1e12, "dense_flops_per_s": rates})
    return path, (given["mfuPrefill"], given["mfuDecode"])


def _write(path, table):
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return str(path)
