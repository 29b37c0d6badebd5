"""Tables below [engine] of the scheduler `sglang`: LoRA and structured outputs."""
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from simulator.scheduling.adapter_prices import AdapterKeys
from simulator.scheduling.grammar_tables import BACKEND, Cpus, GrammarKeys

MOST_THREADS, SPARE_THREADS = 32, 4     # of concurrent.futures.ThreadPoolExecutor: min(32, CPUs + 4)
POLL_NS = 500_000           # between two looks of a pass at grammars: SGLANG_GRAMMAR_POLL_INTERVAL / 10
POLLS = ("grammars: SGLang's scheduler waits up to 5 ms in each pass while a grammar compiles, beside the batch that "
         "executes; the passes of this run take no time")


class SglangLora(AdapterKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRA adapters, [engine.lora].

    A request waits while its adapter has no place among those of running and admitted requests, and later requests
    overtake it. Requests without an adapter take one place together. All adapters are in host memory; one that the
    worker lacks is copied before the batch that needs it, while all its requests wait. Kernels of adapters run in each
    batch, also without adapters.
    Source: sglang 0.5.23, managers/scheduler.py (can_schedule_lora_req), lora/lora_manager.py, lora/mem_pool.py.
    """

    disk_gb_per_s: ClassVar[None] = None

    max_loras_per_batch: Annotated[Annotated[int, Meta(ge=1, le=2**16)], Meta(description=(
        "adapters in a batch, and on the accelerator; requests without an adapter count as one"))] = 8
    step_factor: Annotated[float, Meta(ge=1, le=100, description=(
        "factor on the time of each batch, also without adapters"))] = 1.1

    @property
    def slots(self) -> int:
        """Adapters on the accelerator."""
        return self.max_loras_per_batch


class SglangGrammars(GrammarKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grammars of structured outputs, [engine.structured_outputs].

    A request with a grammar that the server lacks waits in a queue of its own, and joins the waiting requests in the
    first pass after its compilation. Each request has its own compilation until a pass has seen the end of one. In each
    batch one thread masks the logits of all requests with grammars, beside the forward pass.
    Source: sglang 0.5.23, constrained/grammar_manager.py, constrained/base_grammar_backend.py, managers/tp_worker.py.
    """

    backend: Annotated[Literal["xgrammar", "llguidance"], Meta(description=BACKEND)] = "xgrammar"
    cpus: Annotated[Cpus, Meta(description=(
        "CPUs of the host: 4 more threads compile, at most 32; 0: no limit on compilations"))] = 16

    def notes_on(self, longest_ns: int) -> tuple[str, ...]:
        """See GrammarKeys."""
        return (POLLS,) if longest_ns > POLL_NS else ()

    @property
    def compiler(self) -> str:
        """See GrammarKeys."""
        return "guidance" if self.backend == "llguidance" else self.backend

    @property
    def workers(self) -> int:
        """See GrammarKeys."""
        return min(MOST_THREADS, self.cpus + SPARE_THREADS) if self.cpus else 0
