"""The timed operators in vLLM's kernels; PyTorch's are measured for operators that this vLLM lacks.

Signatures as of vLLM 0.11 to 0.27 (vllm/_custom_ops.py, vllm/vllm_flash_attn/flash_attn_interface.py,
vllm/v1/attention/backends/fa_utils.py, vllm/model_executor/layers/fused_moe). Each kernel is called once before it is
timed: if it is missing, has another signature or refuses the shape, PyTorch's is measured, `lacking` has the reason,
and `kernel_source` of the row names the timed one. Products of bfloat16, the embedding and the greedy sampler are
PyTorch's in vLLM too.

Attention reads a paged cache of shuffled blocks of 16 tokens through block tables, prompts as well as decodes, as
vLLM's V1 engine does. Not measured: scheduler metadata that FlashAttention 3 computes ahead, products with scales by
blocks, and vLLM's all-reduce of its own.
"""
import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from simulator.profiling.plan import Point
from simulator.profiling.session import NotMeasured
from simulator.profiling.timing import Make
from simulator.profiling.torch_kernels import EPSILON, TorchKernels, num_bytes_of

BLOCK_TOKENS = 16               # of the KV cache, vLLM's default
OPS, MOE = "vllm._custom_ops", "vllm.model_executor.layers.fused_moe"
# Locations of kernels, the newest first: module, attribute. Activations are registered with PyTorch by vLLM's
# library, which `_custom_ops` loads.
PLACES = {
    **{name: ((OPS, name),) for name in (
        "rms_norm", "fused_add_rms_norm", "rotary_embedding", "reshape_and_cache_flash", "cutlass_scaled_mm",
        "scaled_fp8_quant")},
    "silu_and_mul": (("torch", "ops._C.silu_and_mul"), (OPS, "silu_and_mul")),
    "flash_attn_varlen_func": (("vllm.vllm_flash_attn", "flash_attn_varlen_func"),),
    "get_flash_attn_version": (("vllm.v1.attention.backends.fa_utils", "get_flash_attn_version"),
                               ("vllm.attention.utils.fa_utils", "get_flash_attn_version")),
    "fused_experts": ((f"{MOE}.fused_moe", "fused_experts"), (MOE, "fused_experts")),
    "fp8_w8a8_moe_quant_config": ((f"{MOE}.config", "fp8_w8a8_moe_quant_config"),)}
UNUSABLE = (ImportError, AttributeError, OSError, RuntimeError, TypeError, ValueError, AssertionError, KeyError,
            NotImplementedError)


def find_vllm() -> tuple[str, str]:
    """Return the version of vLLM, or an empty text and the reason."""
    if find_spec("vllm") is None:
        return "", "vLLM is not installed"
    try:
        return str(import_module("vllm").__version__), ""
    except UNUSABLE as error:
        return "", f"vLLM does not import: {error}"


class VllmKernels:
    """Makes calls of vLLM's operators, or of PyTorch's if vLLM has none.

    Parameters
    ----------
    torch : the module.
    device : cuda or cpu.
    version : of vLLM.
    stand_ins : for operators that vLLM lacks, or that are PyTorch's in vLLM too.

    Attributes
    ----------
    lacking : operator -> the reason why PyTorch's was measured, at least once.
    """

    def __init__(self, torch, device: str, version: str, stand_ins: TorchKernels):
        self._torch, self._device, self._version, self._stand_ins = torch, device, version, stand_ins
        self._found: dict[str, Callable | None] = {}
        self.lacking: dict[str, str] = {}

    def refuses(self, point: Point) -> str:
        """Return why a point has no kernel here; empty: it has one."""
        return "" if self._own(point) else self._stand_ins.refuses(point)

    def needed_bytes(self, point: Point) -> int:
        """Return the bytes of the operands and results of one call, about."""
        return self._stand_ins.needed_bytes(point)

    def make(self, point: Point) -> tuple[str, Make]:
        """Return the name of a point's kernel, and a function that makes calls of it.

        Raises
        ------
        NotMeasured
            Neither vLLM nor PyTorch has one.
        """
        own = self._own(point)
        if own is not None:
            operator, make, name = own
            try:
                make()[0]()
                if self._device == "cuda":
                    self._torch.cuda.synchronize()
                return f"vllm {self._version} {name}", make
            except self._torch.OutOfMemoryError:
                raise
            except UNUSABLE as error:
                self.lacking.setdefault(operator, f"{point}: {' '.join(str(error).split())[:200]}")
        if reason := self._stand_ins.refuses(point):
            raise NotMeasured(reason)
        return self._stand_ins.make(point)

    def _own(self, point: Point) -> tuple[str, Make, str] | None:
        """Return vLLM's operator, a maker of its calls, and its name in tables; None: PyTorch's is used."""
        cells, table = point.values(), point.table
        if table == "small":
            shape = self._stand_ins.shape(point)
            operator, make = {
                "norms": ("fused_add_rms_norm", self._norms), "qk_norm": ("rms_norm", self._qk_norm),
                "activation": ("silu_and_mul", self._activation),
                "rope_kv_write": ("rotary_embedding", self._rope_kv_write)}.get(cells["operator"], (None, None))
            is_served = operator and not (operator == "silu_and_mul" and not shape[1])
            return self._if_there(operator, lambda: make(cells["num_tokens"], *shape)) if is_served else None
        if table == "gemm":
            return self._if_there("cutlass_scaled_mm", lambda: self._scaled_mm(cells["m"], cells["n"], cells["k"])) \
                if cells["gemm_dtype"] == "fp8" else None
        if table == "scale_matrix":
            return self._if_there("scaled_fp8_quant", lambda: self._quantized(cells["m"], cells["k"]))
        if table == "moe":
            return self._if_there("fused_experts", lambda: self._experts(cells), "fused_experts triton")
        version = self._attention_version()
        return self._if_there("flash_attn_varlen_func", lambda: self._attention(point, version),
                              f"flash_attn_varlen_func fa{version or ''}")

    def _if_there(self, operator: str, make: Make, name: str = "") -> tuple[str, Make, str] | None:
        if self._find(operator) is None:
            self.lacking.setdefault(operator, f"vLLM {self._version} has none where it is looked for")
            return None
        return operator, make, name or operator

    def _find(self, name: str) -> Callable | None:
        """Return vLLM's function of this name; None: it has none."""
        if name not in self._found:
            self._found[name] = None
            for module, attribute in PLACES[name]:
                try:
                    import_module(OPS)          # loads the library
                    found = import_module(module)
                    for part in attribute.split("."):
                        found = getattr(found, part)
                    self._found[name] = found
                    break
                except UNUSABLE:
                    continue
        return self._found[name]

    # ---- operators between products

    def _normal(self, *shape: int):
        return self._torch.empty(shape, dtype=self._torch.bfloat16, device=self._device).normal_()

    def _ones(self, *shape: int):
        return self._torch.ones(shape, dtype=self._torch.float32, device=self._device)

    def _norms(self, tokens: int, hidden: int):
        x, residual, weight = self._normal(tokens, hidden), self._normal(tokens, hidden), self._normal(hidden)
        call = self._find("fused_add_rms_norm")
        return lambda: call(x, residual, weight, EPSILON), num_bytes_of(x, residual)

    def _qk_norm(self, tokens: int, heads: int, kv_heads: int, head_dim: int):
        parts = [self._normal(tokens * each, head_dim) for each in (heads, kv_heads)]
        outs, weight, call = [part.clone() for part in parts], self._normal(head_dim), self._find("rms_norm")

        def run():
            for out, part in zip(outs, parts):
                call(out, part, weight, EPSILON)
        return run, 2 * num_bytes_of(*parts)

    def _activation(self, tokens: int, width: int, is_gated: bool):
        x, out, call = self._normal(tokens, 2 * width), self._normal(tokens, width), self._find("silu_and_mul")
        return lambda: call(out, x), num_bytes_of(x, out)

    def _rope_kv_write(self, tokens: int, heads: int, kv_heads: int, head_dim: int):
        torch, (rotate, write) = self._torch, map(self._find, ("rotary_embedding", "reshape_and_cache_flash"))
        if write is None:
            raise NotImplementedError("vLLM has no reshape_and_cache_flash where it is looked for")
        query, key, value = (self._normal(tokens, each * head_dim) for each in (heads, kv_heads, kv_heads))
        positions, angles = torch.arange(tokens, device=self._device), self._normal(tokens, head_dim)
        num_blocks = -(-tokens // BLOCK_TOKENS)
        caches = [self._normal(num_blocks, BLOCK_TOKENS, kv_heads, head_dim) for _ in range(2)]
        slots = torch.randperm(num_blocks * BLOCK_TOKENS, device=self._device)[:tokens]
        scale = self._ones(1)

        def run():
            rotate(positions, query, key, head_dim, angles, True)
            write(key.view(tokens, kv_heads, head_dim), value.view(tokens, kv_heads, head_dim), *caches, slots, "auto",
                  scale, scale)
        return run, num_bytes_of(query, key, value, *caches)

    # ---- products and formats

    def _scaled_mm(self, m: int, n: int, k: int):
        """Return a product with a scale for each token and one for the weights."""
        fp8, call = self._torch.float8_e4m3fn, self._find("cutlass_scaled_mm")
        x, weight = self._normal(m, k).to(fp8), self._normal(n, k).to(fp8)
        of_tokens, of_weights = self._ones(m, 1), self._ones(1)
        return (lambda: call(x, weight.t(), of_tokens, of_weights, self._torch.bfloat16), num_bytes_of(x, weight))

    def _quantized(self, tokens: int, width: int):
        x, call = self._normal(tokens, width), self._find("scaled_fp8_quant")
        return lambda: call(x, use_per_token_if_dynamic=True), num_bytes_of(x)

    # ---- attention

    def _attention_version(self) -> int | None:
        """Return the version of FlashAttention that vLLM uses here; None: not given."""
        ask = self._find("get_flash_attn_version")
        return ask() if ask is not None else None

    def _attention(self, point: Point, version: int | None):
        cells, torch, call = point.values(), self._torch, self._find("flash_attn_varlen_func")
        is_decode, is_fp8 = point.table.startswith("generation"), cells["kv_cache_dtype"] == "fp8"
        if is_fp8 and version != 3:
            raise NotImplementedError(f"FlashAttention {version} reads no fp8 cache")
        batch, heads, kv_heads, head_dim = (cells[name] for name in (
            "batch_size", "num_heads", "num_key_value_heads", "head_dim"))
        queries, kept = (1, cells["step"] + 1) if is_decode else (cells["isl"], cells["isl"])
        blocks = -(-kept // BLOCK_TOKENS)
        dtype = torch.float8_e4m3fn if is_fp8 else torch.bfloat16
        q = self._normal(batch * queries, heads, head_dim).to(dtype)
        k, v = (self._normal(batch * blocks, BLOCK_TOKENS, kv_heads, head_dim).to(dtype) for _ in range(2))
        whole = {"dtype": torch.int32, "device": self._device}
        window = cells["window_size"]
        given = {
            "out": self._normal(batch * queries, heads, head_dim), "max_seqlen_q": queries, "max_seqlen_k": kept,
            "cu_seqlens_q": torch.arange(0, batch * queries + 1, queries, **whole),
            "seqused_k": torch.full((batch,), kept, **whole), "softmax_scale": head_dim ** -0.5, "causal": True,
            "window_size": [window - 1, 0] if window else [-1, -1],
            "block_table": torch.randperm(batch * blocks, **whole).view(batch, blocks)}
        if version is not None:
            given["fa_version"] = version
        if is_fp8:
            given |= dict.fromkeys(("q_descale", "k_descale", "v_descale"), self._ones(batch, kv_heads))
        return lambda: call(q, k, v, **given), num_bytes_of(q, k, v)

    # ---- experts

    def _experts(self, cells: dict):
        """Return the experts of rank 0, with choices dealt out in turn, as in torch_kernels."""
        torch, call = self._torch, self._find("fused_experts")
        experts, ranks, tokens, chosen = (cells[name] for name in (
            "num_experts", "moe_ep_size", "num_tokens", "topk"))
        hidden, inter, local = cells["hidden_size"], cells["inter_size"] // cells["moe_tp_size"], experts // ranks
        choices = torch.arange(tokens * chosen, device=self._device)
        ids = (choices % ranks * local + choices // ranks % local).view(tokens, chosen).to(torch.int32)
        x, up, down = self._normal(tokens, hidden), self._normal(local, 2 * inter, hidden), self._normal(
            local, hidden, inter)
        given = {"global_num_experts": experts, "expert_map": None}
        if ranks > 1:
            places = torch.arange(experts, device=self._device, dtype=torch.int32)
            given["expert_map"] = torch.where(places < local, places, -1)
        if cells["moe_dtype"] == "fp8":
            up, down = up.to(torch.float8_e4m3fn), down.to(torch.float8_e4m3fn)
            given |= self._scales_of_experts(call, self._ones(local), self._ones(local))
        weights = self._ones(tokens, chosen) / chosen
        return lambda: call(x, up, down, weights, ids, **given), num_bytes_of(x, up, down)

    def _scales_of_experts(self, call: Callable, up, down) -> dict:
        """Return the keywords for one scale an expert: a configuration, or in older versions flags."""
        if "quant_config" in inspect.signature(call).parameters:
            configuration = self._find("fp8_w8a8_moe_quant_config")
            if configuration is None:
                raise NotImplementedError("vLLM has no fp8_w8a8_moe_quant_config where it is looked for")
            return {"quant_config": configuration(w1_scale=up, w2_scale=down)}
        return {"use_fp8_w8a8": True, "w1_scale": up, "w2_scale": down}
