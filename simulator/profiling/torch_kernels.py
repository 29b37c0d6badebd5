"""The timed operators in PyTorch's kernels.

Products by cuBLAS (fp8: torch._scaled_mm with one scale a tensor), attention by scaled_dot_product_attention, a
decode's heads packed as the queries of their KV head. Norms, rotation and experts use PyTorch's functions: several
kernels where an engine fuses them. `kernel_source` names the timed one.
"""
from collections.abc import Callable
from math import prod

from simulator.profiling.plan import Plan, Point
from simulator.profiling.timing import Make

EPSILON = 1e-6
FP8_CAPABILITY = (8, 9)         # compute capability from which products of fp8 exist


class TorchKernels:
    """Makes calls of operators.

    Parameters
    ----------
    torch : the module.
    device : cuda or cpu.
    plan : its shapes.

    Attributes
    ----------
    lacking : as in VllmKernels: empty.
    """

    def __init__(self, torch, device: str, plan: Plan):
        self._torch, self._device, self._shapes = torch, device, plan.shapes
        self._functional = torch.nn.functional
        self.lacking: dict[str, str] = {}

    def refuses(self, point: Point) -> str:
        """Return why a point has no kernel here; empty: it has one."""
        cells = point.values()
        if cells.get("window_size"):
            return "PyTorch's attention has no window without a mask; operators cuts that of the full length"
        if cells.get("kv_cache_dtype", "bfloat16") != "bfloat16":
            return f"PyTorch's attention reads no {cells['kv_cache_dtype']} cache"
        if cells.get("moe_dtype", "bfloat16") != "bfloat16":
            return f"PyTorch has no experts of {cells['moe_dtype']}"
        if cells.get("gemm_dtype") == "fp8" and (
                self._device == "cpu" or self._torch.cuda.get_device_capability() < FP8_CAPABILITY):
            return "the device has no products of fp8"
        return ""

    def shape(self, point: Point) -> tuple:
        """Return the shape of an operator between products."""
        cells = point.values()
        return self._shapes[cells["operator"], cells["elements"]]

    def needed_bytes(self, point: Point) -> int:
        """Return the bytes of the operands and results of one call, about."""
        cells = point.values()
        if point.table == "gemm":
            m, n, k = cells["m"], cells["n"], cells["k"]
            return 2 * (m * k + n * k + m * n) if cells["gemm_dtype"] == "bfloat16" else m * k + n * k + 2 * m * n
        if point.table.endswith("attention"):
            queries = cells["batch_size"] * cells["isl"] * cells["num_heads"] * cells["head_dim"]
            kept = cells["step"] + 1 if point.table.startswith("generation") else cells["isl"]
            cached = cells["batch_size"] * kept * cells["num_key_value_heads"] * cells["head_dim"]
            return 2 * (2 * queries + 2 * cached)
        if point.table == "moe":
            weights = 3 * cells["hidden_size"] * cells["inter_size"] // cells["moe_tp_size"] * self._local(cells)
            return 2 * weights + 12 * cells["num_tokens"] * cells["topk"] * (cells["hidden_size"] + cells["inter_size"])
        if point.table == "scale_matrix":
            return 12 * cells["m"] * cells["k"]
        shape = self.shape(point)
        held = 2 * prod(shape) if cells["operator"] == "embedding" else 0
        return held + 4 * cells["elements"] * cells["num_tokens"]

    def make(self, point: Point) -> tuple[str, Make]:
        """Return the name of a point's kernel, and a function that makes calls of it."""
        cells = point.values()
        if point.table == "small":
            name = cells["operator"]
            shape = self.shape(point)
            return f"torch_{name}", lambda: getattr(self, f"_{name}")(cells["num_tokens"], *shape)
        return {"gemm": self._gemm, "context_attention": self._context, "generation_attention": self._generation,
                "moe": self._moe, "scale_matrix": self._quantized}[point.table](cells)

    # ---- tensors

    def _normal(self, *shape: int):
        return self._torch.empty(shape, dtype=self._torch.bfloat16, device=self._device).normal_()

    def _integers(self, high: int, count: int):
        return self._torch.randint(high, (count,), device=self._device)

    # ---- tables

    def _gemm(self, cells: dict) -> tuple[str, Make]:
        m, n, k = cells["m"], cells["n"], cells["k"]
        if cells["gemm_dtype"] == "fp8":
            return "torch._scaled_mm", lambda: self._scaled(m, n, k)

        def make():
            x, weight = self._normal(m, k), self._normal(n, k)
            return lambda: self._functional.linear(x, weight), num_bytes_of(x, weight)
        return "torch.nn.functional.linear", make

    def _scaled(self, m: int, n: int, k: int):
        fp8 = self._torch.float8_e4m3fn
        x, weight = self._normal(m, k).to(fp8), self._normal(n, k).to(fp8)
        one = self._torch.ones((), device=self._device)
        return (lambda: self._torch._scaled_mm(x, weight.t(), one, one, out_dtype=self._torch.bfloat16),
                num_bytes_of(x, weight))

    def _quantized(self, cells: dict) -> tuple[str, Make]:
        """Return a maker of calls that quantize rows to fp8, each with a scale of its own."""
        def make():
            x, fp8 = self._normal(cells["m"], cells["k"]), self._torch.float8_e4m3fn

            def run():
                scale = x.abs().amax(-1, keepdim=True).float() / self._torch.finfo(fp8).max
                return (x / scale).to(fp8), scale
            return run, num_bytes_of(x)
        return "torch_per_token_fp8", make

    def _context(self, cells: dict) -> tuple[str, Make]:
        batch, length, head_dim = cells["batch_size"], cells["isl"], cells["head_dim"]
        heads, kv_heads = cells["num_heads"], cells["num_key_value_heads"]

        def make():
            q, k, v = (self._normal(batch, length, each, head_dim).transpose(1, 2)
                       for each in (heads, kv_heads, kv_heads))
            return (lambda: self._functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=heads != kv_heads), num_bytes_of(q, k, v))
        return "torch_sdpa", make

    def _generation(self, cells: dict) -> tuple[str, Make]:
        batch, kept, head_dim = cells["batch_size"], cells["step"] + 1, cells["head_dim"]
        kv_heads = cells["num_key_value_heads"]
        group = cells["num_heads"] // kv_heads

        def make():
            q = self._normal(batch, kv_heads, group, head_dim)
            k, v = (self._normal(batch, kept, kv_heads, head_dim).transpose(1, 2) for _ in range(2))
            return lambda: self._functional.scaled_dot_product_attention(q, k, v), num_bytes_of(q, k, v)
        return "torch_sdpa_packed_heads", make

    def _local(self, cells: dict) -> int:
        return cells["num_experts"] // cells["moe_ep_size"]

    def _moe(self, cells: dict) -> tuple[str, Make]:
        """Return the experts of rank 0, with choices dealt out in turn: one by one, as PyTorch has no fused kernel."""
        hidden, inter = cells["hidden_size"], cells["inter_size"] // cells["moe_tp_size"]
        tokens, chosen, ranks, local = cells["num_tokens"], cells["topk"], cells["moe_ep_size"], self._local(cells)
        rows = [[] for _ in range(local)]
        for choice in range(0, tokens * chosen, ranks):
            rows[choice // ranks % local].append(choice // chosen)
        kept = [(expert, self._torch.tensor(each, device=self._device)) for expert, each in enumerate(rows) if each]

        def make():
            x = self._normal(tokens, hidden)
            up, down = self._normal(local, 2 * inter, hidden), self._normal(local, hidden, inter)
            out = self._torch.zeros_like(x)

            def run():
                for expert, places in kept:
                    gate, value = self._functional.linear(x[places], up[expert]).chunk(2, -1)
                    part = self._functional.linear(self._functional.silu(gate) * value, down[expert])
                    out.index_add_(0, places, part)
            return run, num_bytes_of(x, up, down)
        return "torch_expert_by_expert", make

    # ---- operators between products

    def _norms(self, tokens: int, hidden: int):
        x, residual, weight = self._normal(tokens, hidden), self._normal(tokens, hidden), self._normal(hidden)
        return (lambda: self._functional.rms_norm(residual.add_(x), (hidden,), weight, EPSILON),
                num_bytes_of(x, residual))

    def _activation(self, tokens: int, width: int, is_gated: bool):
        x = self._normal(tokens, width * (1 + is_gated))
        if not is_gated:
            return lambda: self._functional.gelu(x), num_bytes_of(x)
        gate, value = x.chunk(2, -1)
        return lambda: self._functional.silu(gate) * value, num_bytes_of(x)

    def _embedding(self, tokens: int, hidden: int, vocabulary: int):
        table, places = self._normal(vocabulary, hidden), self._integers(vocabulary, tokens)
        return lambda: self._functional.embedding(places, table), num_bytes_of(table)

    def _sampler(self, rows: int, vocabulary: int):
        logits = self._normal(rows, vocabulary)
        return lambda: logits.float().argmax(-1), num_bytes_of(logits)

    def _qk_norm(self, tokens: int, heads: int, kv_heads: int, head_dim: int):
        parts, weight = [self._normal(tokens, each, head_dim) for each in (heads, kv_heads)], self._normal(head_dim)

        def run():
            return [self._functional.rms_norm(part, (head_dim,), weight, EPSILON) for part in parts]
        return run, 2 * num_bytes_of(*parts)

    def _rope_kv_write(self, tokens: int, heads: int, kv_heads: int, head_dim: int):
        q, k, v = (self._normal(tokens, each, head_dim) for each in (heads, kv_heads, kv_heads))
        cosine, sine = self._normal(tokens, 1, head_dim), self._normal(tokens, 1, head_dim)
        k_cache, v_cache = self._normal(tokens, kv_heads, head_dim), self._normal(tokens, kv_heads, head_dim)
        slots = self._torch.randperm(tokens, device=self._device)

        def run():
            rotated, keys = (part * cosine + self._turned(part) * sine for part in (q, k))
            k_cache.index_copy_(0, slots, keys)
            v_cache.index_copy_(0, slots, v)
            return rotated
        return run, num_bytes_of(q, k, v, k_cache, v_cache)

    def _turned(self, part):
        left, right = part.chunk(2, -1)
        return self._torch.cat((-right, left), -1)


def host_call(torch, device: str, operation: str, num_kernels: int) -> Callable | None:
    """Return a function with the host's work: launch a kernel, or replay a graph.

    None: the device has no graphs.
    """
    x = torch.zeros(16, device=device)
    if operation == "launch":
        return lambda: x.add_(1)
    if device == "cpu":
        return None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(num_kernels):
            x.add_(1)
    return graph.replay


def num_bytes_of(*tensors) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
