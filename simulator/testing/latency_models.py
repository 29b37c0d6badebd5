"""Contract of latency models."""
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

from simulator import registry
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.testing.contract import expect, verify
from simulator.testing.runs import experiment_of, holds_in_a_cluster

NUM_BATCHES = 100
ROUNDING = 1e-12


def check_latency_model(name: str, parameters: Mapping[str, Any] | None = None, *, step: float = 0.0,
                        **sections: Any) -> None:
    """Check that a latency model keeps the contract of latency models.

    Parameters
    ----------
    name : a built-in name, or "module:Class".
    parameters : keys of [latency] beside `backend`; None: defaults.
    step : share of a batch's time by which a larger batch may be faster, for tables with measured steps.
    sections : other tables of the experiment, such as model={"name": "llama-3.1-8b"}.

    Raises
    ------
    AssertionError
        The rules that it breaks, a line each.
    """
    registry.load("latency", name, [os.getcwd()])
    changes = {"latency": {"backend": name, **(parameters or {})}, **sections}
    pool = experiment_of("light", changes).all_pools()[0]
    model = latency_model(Site(pool).check())
    verify(name, (durations_are_positive, equal_batches_take_equal_times, more_work_takes_no_less), model, step)
    holds_in_a_cluster(name, changes)


def durations_are_positive(model, _):
    """Each batch takes a positive, finite time."""
    for chunks, contexts in batches():
        seconds = model.predict(chunks, contexts)
        expect(0 < seconds < 1e6, f"chunks {chunks}, contexts {contexts}: {seconds} s")


def equal_batches_take_equal_times(model, _):
    """Equal batches take equal times, for any questions between them."""
    first = [model.predict(*batch) for batch in batches()]
    expect(first == [model.predict(*batch) for batch in batches()], "the second time is another")


def more_work_takes_no_less(model, step):
    """One more token, sequence or token of context does not make an iteration faster."""
    for chunks, contexts in batches():
        before = model.predict(chunks, contexts)
        for gained, *batch in gains(chunks, contexts):
            after = model.predict(*batch)
            expect(after >= before * (1 - step - ROUNDING), f"chunks {chunks}, contexts {contexts}: {before} s, "
                                                            f"with one more {gained} {after} s")


def batches() -> Iterator[tuple[list[tuple[int, int]], list[int]]]:
    """Yield random batches: chunks (tokens, tokens cached before), contexts."""
    draw = random.Random(1)

    def length(most: int) -> int:
        return max(1, int(most ** draw.random()))

    for _ in range(NUM_BATCHES):
        chunks = [(length(4000), length(20_000) * draw.choice((0, 1))) for _ in range(draw.choice((0, 1, 1, 2, 4)))]
        yield chunks, [length(20_000) for _ in range(draw.randrange(not chunks, 33))]


def gains(chunks: list, contexts: list) -> Iterator[tuple[str, list, list]]:
    """Yield larger batches: the name of the addition, chunks, contexts."""
    yield "sequence", chunks, [*contexts, max(contexts, default=100)]
    yield "chunk", [*chunks, (100, 0)], contexts
    if chunks:
        (tokens, before), *rest = chunks
        yield "token", [(tokens + 1, before), *rest], contexts
        yield "token of a chunk's context", [(tokens, before + 1), *rest], contexts
    if contexts:
        yield "token of context", chunks, [contexts[0] + 1, *contexts[1:]]
