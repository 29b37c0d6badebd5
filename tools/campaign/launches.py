"""The host's time to launch kernels: layers of a model kernel by kernel against one CUDA graph.

The layers are those of an engine without compilation: each norm, product, rotation and activation is a call of PyTorch.
`host_ms` ends when the host has issued all calls, `wall_ms` when the device has finished them.
"""
import time
from collections.abc import Callable
from typing import NamedTuple

from campaign.record import Part

EPSILON = 1e-6
LAYERS = 16
TOKENS = (1, 4, 16, 64, 256, 512, 1024, 2048)
HOST = (("launch", 1), ("graph_replay", 1), ("graph_replay", 32), ("graph_replay", 512))


class LayerShape(NamedTuple):
    """The widths of a layer; `experts` 0: a dense MLP."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    experts: int = 0
    chosen: int = 0


# Llama-3.1-8B and Qwen3-30B-A3B, config.json of each.
SHAPES = (LayerShape("dense", 4096, 32, 8, 128, 14_336), LayerShape("mixture", 2048, 32, 4, 128, 768, 128, 8))
TINY = (LayerShape("dense", 32, 4, 2, 8, 64), LayerShape("mixture", 32, 4, 2, 8, 16, 4, 2))


class Layer:
    """One layer's weights, and its forward pass over the tokens of decoding sequences.

    Attention is measured in the part `attention`: here a sequence reads its own token alone, so that launches are
    compared, not bytes.
    """

    def __init__(self, torch, device: str, shape: LayerShape):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32

        def normal(*sizes: int):
            return torch.empty(sizes, dtype=dtype, device=device).normal_(std=0.02)

        self._torch, self._functional, self._shape = torch, torch.nn.functional, shape
        width = shape.heads * shape.head_dim
        self._norms = [normal(shape.hidden) for _ in range(2)]
        self._qkv = normal(width + 2 * shape.kv_heads * shape.head_dim, shape.hidden)
        self._out = normal(shape.hidden, width)
        self._cosine, self._sine = normal(1, 1, shape.head_dim), normal(1, 1, shape.head_dim)
        count = max(shape.experts, 1)
        self._router = normal(count, shape.hidden)
        self._up = normal(count, 2 * shape.intermediate, shape.hidden)
        self._down = normal(count, shape.hidden, shape.intermediate)

    def forward(self, x):
        """Return the hidden states after the layer; x [tokens, hidden]."""
        shape, functional = self._shape, self._functional
        normed = functional.rms_norm(x, (shape.hidden,), self._norms[0], EPSILON)
        parts = functional.linear(normed, self._qkv).view(len(x), -1, shape.head_dim)
        q, k, v = parts.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        q, k = (part * self._cosine + self._turned(part) * self._sine for part in (q, k))
        attended = functional.scaled_dot_product_attention(
            q.unsqueeze(2), k.unsqueeze(2), v.unsqueeze(2), enable_gqa=shape.heads != shape.kv_heads)
        x = x + functional.linear(attended.reshape(len(x), -1), self._out)
        normed = functional.rms_norm(x, (shape.hidden,), self._norms[1], EPSILON)
        return x + (self._experts(normed) if shape.experts else self._mlp(normed, 0))

    def _turned(self, part):
        left, right = part.chunk(2, -1)
        return self._torch.cat((-right, left), -1)

    def _mlp(self, x, expert: int):
        gate, value = self._functional.linear(x, self._up[expert]).chunk(2, -1)
        return self._functional.linear(self._functional.silu(gate) * value, self._down[expert])

    def _experts(self, x):
        """Return the weighted sum of the chosen experts, each of which takes an equal share of the sorted choices."""
        torch, shape = self._torch, self._shape
        weights, chosen = torch.topk(torch.softmax(self._functional.linear(x, self._router), -1), shape.chosen)
        order = torch.argsort(chosen.flatten())
        capacity = -(-len(order) // shape.experts)
        places = self._functional.pad(order // shape.chosen, (0, capacity * shape.experts - len(order)))
        rows = x[places].view(shape.experts, capacity, -1)
        gate, value = torch.bmm(rows, self._up.transpose(1, 2)).chunk(2, -1)
        found = torch.bmm(self._functional.silu(gate) * value, self._down.transpose(1, 2)).flatten(0, 1)
        found = found[:len(order)] * weights.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x).index_add_(0, places[:len(order)], found)


class Launches:
    """Times layers kernel by kernel and as one graph.

    Parameters
    ----------
    num_layers : in one run.
    """

    def __init__(self, torch, device: str, num_layers: int, repeats: int = 7):
        self._torch, self._device, self._num_layers, self._repeats = torch, device, num_layers, repeats

    def measure(self, shape: LayerShape, tokens: int) -> dict:
        """Return milliseconds a layer, and the number of kernels in a layer."""
        torch = self._torch
        layers = [Layer(torch, self._device, shape) for _ in range(self._num_layers)]
        x = torch.ones((tokens, shape.hidden), device=self._device,
                       dtype=torch.bfloat16 if self._device == "cuda" else torch.float32)

        def run():
            y = x
            for layer in layers:
                y = layer.forward(y)
            return y

        with torch.inference_mode():
            run()
            eager = self._times(run)
            found = {"calls_per_layer": self._calls(run) / self._num_layers, "host_ms": eager[0], "wall_ms": eager[1],
                     "wall_spread_frac": eager[2]}
            if self._device == "cuda":
                found["kernels_per_layer"] = self._kernels(run) / self._num_layers
                graph = self._times(self._graph(run).replay)
                found |= {"graph_host_ms": graph[0], "graph_wall_ms": graph[1], "graph_wall_spread_frac": graph[2]}
        return found | {"layers": self._num_layers}

    def _settle(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def _times(self, run: Callable) -> tuple[float, float, float]:
        """Return medians a layer: until the host is done, until the device is done; and the spread of the second."""
        found = []
        for _ in range(self._repeats):
            self._settle()
            began = time.perf_counter()
            run()
            issued = time.perf_counter()
            self._settle()
            found.append((issued - began, time.perf_counter() - began))
        hosts, walls = (sorted(each) for each in zip(*found))
        middle, scale = self._repeats // 2, 1e3 / self._num_layers
        spread = (walls[-2] - walls[1]) / walls[middle]
        return round(hosts[middle] * scale, 6), round(walls[middle] * scale, 6), round(spread, 4)

    def _graph(self, run: Callable):
        cuda = self._torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            run()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            run()
        graph.replay()
        return graph

    def _calls(self, run: Callable) -> int:
        """Return the number of PyTorch operators that a run dispatches, views left out."""
        from torch.utils._python_dispatch import TorchDispatchMode

        class Counting(TorchDispatchMode):
            count = 0

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                Counting.count += not function.is_view
                return function(*args, **(kwargs or {}))

        with Counting():
            run()
        return Counting.count

    def _kernels(self, run: Callable) -> int:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            run()
            self._settle()
        return sum(event.device_type.name == "CUDA" for event in seen.events())


def launches(part: Part, torch, device: str, shapes, tokens, num_layers: int) -> None:
    """Measure layers of each shape for each number of tokens."""
    bench = Launches(torch, device, num_layers)
    for shape in shapes:
        for count in tokens:
            part.add(lambda shape=shape, count=count: bench.measure(shape, count), layer=shape.name, tokens=count)


def single_calls(part: Part, torch, device: str, timer) -> None:
    """Measure the host's time for one launch, and for the replay of graphs of 1 to 512 kernels."""
    from simulator.profiling.torch_kernels import host_call

    for operation, num_kernels in HOST:
        call = host_call(torch, device, operation, num_kernels)
        if call is not None:
            part.add(lambda call=call: timer(lambda: (call, 0)), operation=operation, num_kernels=num_kernels)
