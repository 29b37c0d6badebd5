"""Formats and parameters of matrices as the tensors of a checkpoint have them: by dtype and shape, without a rule.

Tensors of each method: vLLM 0.33, model_executor/layers/quantization (create_weights), and DeepSeek-V4's files: pairs
of 4-bit weights of experts in I8, with e8m0 scales.
"""
import re
from collections.abc import Callable
from functools import partial
from math import prod
from typing import NamedTuple

from simulator.config.huggingface.module_names import Rows, bare
from simulator.config.huggingface.tensor_files import BITS, Tensor
from simulator.domain.model_spec import ModelSpec
from simulator.domain.stored_format import Format, in_blocks, in_groups, microscaled, nvfp4, per_row, per_tensor

SCALES = ("weight_scale_inv", "weight_scale", "scales", "scale", "SCB", "absmax")
BESIDE = (*SCALES, "weight_scale_2", "weight_global_scale", "weight_zero_point", "weight_shape", "weight_g_idx",
          "qzeros", "g_idx", "input_scale", "input_global_scale", "activation_scale", "k_scale", "v_scale", "q_scale",
          "prob_scale", "output_scale", "quant_map", "nested_absmax", "nested_quant_map", "inv_freq", "weight_format")
WEIGHTS = ("weight", "weight_packed", "qweight", "blocks")
OF_MATRICES = frozenset((*WEIGHTS, *BESIDE))
DRAFTS = re.compile(r"(^|\.)(mtp|nextn|eagle|draft)")
TOWER = re.compile(r"visual|vision|image|audio|mm_projector|multi_modal|patch_merge|speech")


Declared = Callable[[str], Format | None]


class Matrix(NamedTuple):
    """The format of a module's matrix, and its parameters."""

    format: Format | None
    parameters: int


def matrices_of(tensors: dict[str, Tensor], method: str, declared: Declared) -> dict[str, Matrix]:
    """Return the matrices by module.

    method : of the quantisation table. declared : returns the format of a module as that table has it, for the bits of
    packed integers, which no shape shows.
    """
    modules: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        module, leaf = _split(name)
        modules.setdefault(module, {})[leaf] = tensor
    found = {module: _matrix(leaves, method, partial(declared, module)) for module, leaves in modules.items()}
    return {module: matrix for module, matrix in found.items() if matrix is not None}


def rows_of(matrices: dict[str, Matrix]) -> Rows:
    """Return the formats of quantised modules."""
    return Rows({module: each.format for module, each in matrices.items() if each.format is not None})


def decoder_parameters(matrices: dict[str, Matrix], model: ModelSpec) -> int:
    """Count the parameters of the decoder that the matrices of a checkpoint make.

    Drafters, towers and a head that repeats the embedding are no part of it; a drafter's layers follow the model's.
    """
    drafts = range(model.num_layers, model.num_layers + model.num_mtp_layers)
    total = 0
    for module, matrix in matrices.items():
        layer = re.match(r"layers\.(\d+)\.", bare(module))
        is_draft = DRAFTS.search(module) or (layer is not None and int(layer[1]) in drafts)
        if not is_draft and not TOWER.search(module) and not (
                model.tie_word_embeddings and bare(module) == "lm_head"):
            total += matrix.parameters
    return total


def _split(name: str) -> tuple[str, str]:
    """Return module and leaf of a tensor: gpt-oss writes "down_proj_blocks", bitsandbytes "weight.absmax"."""
    module, _, leaf = name.partition(".weight.") if ".weight." in name else name.rpartition(".")
    if leaf in OF_MATRICES or leaf == "bias":
        return module, leaf
    for ending in ("blocks", "scales", "scale", "bias"):
        if leaf.endswith(f"_{ending}"):
            return f"{module}.{leaf.removesuffix(f'_{ending}')}", ending
    return name, "weight"


def _matrix(leaves: dict[str, Tensor], method: str, declared: Callable[[], Format | None]) -> Matrix | None:
    extra = sum(prod(tensor.shape) for leaf, tensor in leaves.items() if leaf not in OF_MATRICES)
    leaf = next((each for each in WEIGHTS if each in leaves), None)
    scale = next((leaves[each] for each in SCALES if each in leaves), None)
    if leaf is None:
        return Matrix(None, extra) if extra else None
    weight, form, packed = leaves[leaf], None, 1.0
    if scale is not None and (BITS[weight.dtype] <= 8 or weight.dtype == "I32"):
        if weight.dtype == "I32":
            stated = declared()
            bits = 8 if stated is not None and stated.weight_dtype == "int8" else 4
            form, packed = _of_integers(leaves, weight, scale, method, bits)
        elif leaf == "blocks":
            form, packed = microscaled(method, "fp4"), 2.0          # 16 bytes and a scale for 32 weights
        else:
            form, packed = _of_bytes(leaves, weight, scale, method)
    return Matrix(form, round(prod(weight.shape) * packed) + extra)


def _of_bytes(leaves: dict[str, Tensor], weight: Tensor, scale: Tensor, method: str) -> tuple[Format, float]:
    """Return the format of weights in bytes, one or two a byte, and the weights an element."""
    if "absmax" in leaves:
        group = 2 * prod(weight.shape) // max(1, prod(scale.shape))
        return in_groups(method, "int4", group, BITS[scale.dtype]), 2.0
    columns, groups = weight.shape[-1], scale.shape[-1] if len(scale.shape) >= 2 else 0
    halves = 1.0 if weight.dtype == "F4" else 2.0
    is_exponent = scale.dtype in ("U8", "F8_E8M0")
    if weight.dtype in ("U8", "I8", "F4") and groups and (is_exponent or scale.dtype == "F8_E4M3"):
        return (microscaled(method, "fp4") if is_exponent else nvfp4(method, round(columns * halves / groups))), halves
    return _with_scale(weight, scale, "int8" if weight.dtype in ("I8", "U8") else "fp8", method), 1.0


def _with_scale(weight: Tensor, scale: Tensor, dtype: str, method: str) -> Format:
    bits = BITS[scale.dtype]
    if len(weight.shape) < 2 or prod(scale.shape) <= prod(weight.shape[:-2]):
        return per_tensor(method, dtype)
    if scale.shape in (weight.shape[:-1], (*weight.shape[:-1], 1)) or len(scale.shape) < 2:
        return per_row(method, dtype, bits)
    rows, columns = (_edge(whole, blocks) for whole, blocks in zip(weight.shape[-2:], scale.shape[-2:], strict=True))
    if rows == 1:
        return microscaled(method, dtype) if (columns, bits) == (32, 8) else in_groups(method, dtype, columns, bits)
    return in_blocks(method, rows, columns, bits)


def _edge(whole: int, blocks: int) -> int:
    """Return the width of `blocks` blocks over `whole` weights: the power of two that fits, else an equal share."""
    share = -(-whole // max(1, blocks))
    power = 1 << (share - 1).bit_length()
    return power if -(-whole // power) == blocks else share


def _of_integers(leaves: dict[str, Tensor], weight: Tensor, scale: Tensor, method: str, bits: int
                 ) -> tuple[Format, float]:
    """Return the format of integers packed into I32, and the weights an element.

    Scales of GPTQ and AWQ are groups x outputs, those of compressed-tensors outputs x groups.
    """
    packed = 32 / bits
    if len(weight.shape) < 2 or len(scale.shape) < 2:
        return per_row(method, f"int{bits}", BITS[scale.dtype]), packed
    groups, outputs = scale.shape[-2:] if "qweight" in leaves else scale.shape[:-3:-1]
    inputs = round(prod(weight.shape[-2:]) * packed / max(1, outputs))
    zero = bits if {"qzeros", "weight_zero_point"} & leaves.keys() else 0
    return in_groups(method, f"int{bits}", inputs // groups if groups > 1 else 0, BITS[scale.dtype] + zero), packed
