"""Copies between host and device by size, and the card's own rates: a large copy, large products."""
from collections.abc import Callable

from campaign.record import Part

COPY_BYTES = tuple(4 ** i for i in range(6, 16))        # 4 KiB to 1 GiB
PRODUCT = 8192
DEVICE_COPY_BYTES = 4 << 30


def copies(part: Part, torch, device: str, measure: Callable, sizes=COPY_BYTES) -> None:
    """Measure copies of pinned and pageable memory, each until it has arrived."""
    def settle():
        if device == "cuda":
            torch.cuda.synchronize()

    for num_bytes in sizes:
        for memory in ("pinned", "pageable"):
            for direction in ("to_device", "to_host"):
                def make(num_bytes=num_bytes, is_pinned=memory == "pinned" and device == "cuda", direction=direction):
                    there = torch.ones(num_bytes, dtype=torch.uint8, device=device)
                    here = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
                    source, target = (here, there) if direction == "to_device" else (there, here)

                    def run():
                        target.copy_(source, non_blocking=True)
                        settle()
                    return run, 2 * num_bytes
                part.add(lambda make=make: measure(make), memory=memory, direction=direction, num_bytes=num_bytes)


def rates(part: Part, torch, device: str, measure: Callable, product: int = PRODUCT,
          copied_bytes: int = DEVICE_COPY_BYTES) -> None:
    """Measure the rates that bound all others: bytes moved, and dense products of bfloat16 and fp8."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def copy():
        source, target = (torch.ones(copied_bytes, dtype=torch.uint8, device=device) for _ in range(2))
        return lambda: target.copy_(source), 2 * copied_bytes

    def products():
        x, weight = (torch.randn((product, product), dtype=dtype, device=device) for _ in range(2))
        return lambda: torch.mm(x, weight.t()), 2 * x.numel() * x.element_size()

    def fp8_products():
        x, weight = (torch.randn((product, product), device=device).to(torch.float8_e4m3fn) for _ in range(2))
        one = torch.ones((), device=device)
        return (lambda: torch._scaled_mm(x, weight.t(), one, one, out_dtype=torch.bfloat16), 2 * x.numel())

    flops = 2 * product ** 3
    part.add(lambda: _rate(measure(copy), "bytes_per_s", 2 * copied_bytes), what="device copy, read and written")
    part.add(lambda: _rate(measure(products), "flops_per_s", flops), what=f"product of {product}, {dtype}")
    if device == "cuda":
        part.add(lambda: _rate(measure(fp8_products), "flops_per_s", flops), what=f"product of {product}, fp8")


def _rate(found: dict, name: str, amount: float) -> dict:
    return found | {name: float(f"{amount / (found['latency_ms'] * 1e-3):.5g}")}
