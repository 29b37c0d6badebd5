"""Names on the Hugging Face hub: the model behind the organisation, the variants of one shape, the storage format."""
import re
from typing import NamedTuple

# Parts of a name that change no shape: tuning, revision, release date.
VARIANT = re.compile(r"-(instruct|it|chat|hf|base|thinking|bf16|v0\.\d+|v\d+|25\d\d|24\d\d|0\d\d\d|fp8-kv|preview)$")
PREFIX = re.compile(r"^(meta-|nvidia-)(?=llama)")
RED_HAT = ("redhatai", "neuralmagic", "nm-testing")


class Format(NamedTuple):
    """A storage format, as a name shows it.

    method : quant_method of config.json. stored : name of the format for [model] dtype. dtype : of activations, if the
    format's checkpoints state another one than the model's. kv_algorithm : ModelOpt's for the KV cache.
    """

    method: str
    stored: str
    dtype: str | None = None
    kv_algorithm: str | None = None


FP8_BLOCK = Format("fp8", "fp8_block")
SUFFIXES = (        # the first that ends a name, without regard to case
    ("-fp8-dynamic", Format("compressed-tensors", "fp8")),
    ("-fp8-kv", Format("compressed-tensors", "fp8")),
    ("-nvfp4", Format("modelopt_fp4", "nvfp4", kv_algorithm="FP8")),
    ("-fp4", Format("modelopt_fp4", "nvfp4", kv_algorithm="FP8")),
    ("-awq-int4", Format("awq", "awq", "float16")),
    ("-awq", Format("awq", "awq", "float16")),
    ("-gptq-int4", Format("gptq", "gptq", "float16")),
    ("-gptq", Format("gptq", "gptq", "float16")),
    ("-quantized.w4a16", Format("compressed-tensors", "int4_wo")),
    ("-w4a16", Format("compressed-tensors", "int4_wo")),
    ("-quantized.w8a8", Format("compressed-tensors", "int8")),
    ("-w8a8", Format("compressed-tensors", "int8")),
    ("-bnb-4bit", Format("bitsandbytes", "int4")),
    ("-gguf", Format("gguf", "int4")),
    ("-fp8", FP8_BLOCK))


def plain(name: str) -> str:
    """Return a name without organisation, in small letters."""
    return name.rstrip("/").rpartition("/")[2].lower().replace("_", "-")


def format_of(name: str) -> Format | None:
    """Return the storage format that a name shows; None: it shows none.

    Red Hat's fp8 checkpoints are compressed-tensors, NVIDIA's are ModelOpt's with an fp8 KV cache, others' fp8 is in
    blocks of 128 x 128 (Qwen, DeepSeek).
    """
    maker, text = name.rpartition("/")[0].lower(), plain(name)
    for suffix, form in SUFFIXES:
        if not text.endswith(suffix):
            continue
        if suffix == "-fp8" and maker in RED_HAT:
            return Format("compressed-tensors", "fp8")
        if suffix == "-fp8" and maker == "nvidia":
            return Format("modelopt", "fp8", kv_algorithm="FP8")
        if suffix == "-nvfp4" and maker in RED_HAT:
            return Format("compressed-tensors", "nvfp4")
        return form
    return None


def bare(name: str) -> str:
    """Return the name of a shape: without organisation, format and variants."""
    text = PREFIX.sub("", plain(name))
    for suffix, _ in SUFFIXES:
        text = text.removesuffix(suffix)
    while (shorter := VARIANT.sub("", text)) != text:
        text = shorter
    return text
