"""Shapes of routed experts for which vLLM ships a tuned configuration of its kernel: hardware/kernels/."""
from functools import cache

import msgspec
import tomli

from simulator.domain.deployment import Deployment
from simulator.domain.facts import folder, read_table
from simulator.domain.vllm_versions import VllmVersion, complete

FILE = "kernels/vllm_fused_moe.toml"
# Where vLLM multiplies with its Triton kernel, which the configurations are of; vllm/model_executor/layers/fused_moe,
# oracle/unquantized.py and oracle/fp8.py in 0.32.0: Blackwell has FlashInfer's, of blocks of fp8 Hopper with EP, too,
# and of whole tensors of fp8 Hopper. 0.10 knew no other one by default.
TRITON = complete({
    "0.32": {"bfloat16": ("Volta", "Turing", "Ampere", "Ada", "Hopper", "CDNA3", "CDNA4"),
             "fp8_block": ("Ada", "Hopper", "CDNA3", "CDNA4"), "fp8": ("Ada", "CDNA3", "CDNA4")},
    "0.10": {"bfloat16": None, "fp8_block": None, "fp8": None}})        # None: all
BLOCKS_BY_FLASHINFER = complete({"0.32": True, "0.10": False})          # fp8_block on Hopper with expert parallelism
# How much longer the default configuration took than a tuned one, in published comparisons of the kernel. 0.32: 0 to
# 11 % (A100, pull request 40542), 0 to 5 % (H200, 44818), 2 to 24 % (H200, 35457), up to 93 % (H20, fp8, 54500). Before
# 0.17 up to twice as long (H100, 34846, which changed the default); GLM-4.6 on MI300X served 15 % fewer tokens (27323).
LONGER = complete({
    "0.32": "0 to 24 % longer in most published comparisons, up to 93 % (H20, fp8), and "
            "up to twice as long before 0.17",
    "0.10": "up to twice as long in published comparisons"})


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fact file: devices by accelerator; shapes as ExN."""

    source: str
    date: str
    devices: dict[str, str]
    versions: dict[VllmVersion, dict[str, dict[str, tuple[str, ...]]]]


@cache
def tuned() -> Tuned:
    """Return the facts."""
    path = folder("hardware") / FILE
    return read_table(tomli.loads(path.read_text(encoding="utf-8")), Tuned, path)


def untuned_note(deployment: Deployment, version: VllmVersion) -> str:
    """Return that the experts of a rank have no tuned kernel; empty: they have.

    Or none of that kind, or another kernel serves them.
    """
    kind = _format_of(deployment)
    architecture = deployment.accelerator.architecture if deployment.accelerator else ""
    if deployment.model.moe is None or kind not in TRITON[version]:
        return ""
    served = TRITON[version][kind]
    if (served is not None and architecture not in served) or (
            BLOCKS_BY_FLASHINFER[version] and kind == "fp8_block" and architecture == "Hopper"
            and deployment.parallelism.expert_parallel > 1):
        return ""
    experts, width = shape_of(deployment)
    device = tuned().devices.get(deployment.accelerator.name, "")
    shapes = complete(tuned().versions)[version].get(kind, {}).get(device, ())
    if f"{experts}x{width}" in shapes:
        return ""
    return (f"experts: vLLM {version} ships no tuned kernel for {experts} experts of width {width} in {kind} on "
            f"{deployment.accelerator.name}; its default one took {LONGER[version]}, which is not counted: predictions "
            "may be too fast by as much, in experts")


def shape_of(deployment: Deployment) -> tuple[int, int]:
    """Return the experts on a rank, and their width there."""
    ways = deployment.parallelism
    slices = max(ways.expert_ranks // ways.expert_parallel, 1)
    return (deployment.num_expert_slots // ways.expert_parallel,
            deployment.model.moe.intermediate_size // slices)


def _format_of(deployment: Deployment) -> str:
    """Return the format of experts as the file has it; empty: another one."""
    dtype = deployment.expert_dtype
    if dtype in ("bfloat16", "float16"):
        return "bfloat16"
    if dtype != "fp8" or not deployment.multiplies_fp8:
        return ""                       # weights alone are in fp8 there: Marlin's kernel
    return "fp8_block" if deployment.expert_quantization.group_size else "fp8"
