"""Selection of a pool for each leg of a request, before routers choose replicas: [cluster.leg_selection].

Source: ai-dynamo/dynamo, components/src/dynamo/global_router at 1b8d9356 (pool_selection.py) and 1e6596e8 (handler.py):
prefill pools by (prompt tokens, bound on the first token), decode pools by (prompt tokens, bound on further tokens).
"""
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.routing.pool_selection import Bounds, Override, PoolSelection, Tokens

Table = Annotated[tuple[Annotated[tuple[str, ...], Meta(min_length=1)], ...], Meta(min_length=1)]
OVERRIDES = "pools of requests by their priority, whatever their shape; the first range that holds it"


class PrefillPools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Pools for prompts."""

    isl: Annotated[Tokens | None, Meta(description="lengths of prompts, the rows of table; absent: one row")] = None
    ttft_ms: Annotated[Bounds | None, Meta(description=(
        "bounds on the time to first token, of [slo] and its classes, the columns of table; absent: one "
        "column"))] = None
    table: Annotated[Table, Meta(description="names of pools for prompts: rows by isl, columns by ttft_ms")]
    overrides: Annotated[tuple[Override, ...], Meta(description=OVERRIDES)] = ()

    def __post_init__(self):
        _ = self.selection      # which checks the table

    @cached_property
    def selection(self) -> PoolSelection:
        """Return the selection among these pools."""
        return PoolSelection(isl=self.isl, ttft_ms=self.ttft_ms, table=self.table, overrides=self.overrides)


class DecodePools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Pools for output."""

    context: Annotated[Tokens | None, Meta(description=(
        "lengths of texts at the begin of decoding, which are those of prompts, the rows of table; absent: one "
        "row"))] = None
    itl_ms: Annotated[Bounds | None, Meta(description=(
        "bounds on the time between tokens, tpot_ms of [slo] and its classes, the columns of table; absent: one "
        "column"))] = None
    table: Annotated[Table, Meta(description="names of pools for output: rows by context, columns by itl_ms")]
    overrides: Annotated[tuple[Override, ...], Meta(description=OVERRIDES)] = ()

    def __post_init__(self):
        _ = self.selection      # which checks the table

    @cached_property
    def selection(self) -> PoolSelection:
        """Return the selection among these pools."""
        return PoolSelection(isl=self.context, itl_ms=self.itl_ms, table=self.table, overrides=self.overrides)


class LegSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pools for prompts, and pools for output, [cluster.leg_selection].

    The shape of a request selects one of each. Each pool that is named has a router of its own; KV goes from any pool
    for prompts to any pool for output. The rules are those of Dynamo's global router.
    """

    prefill: Annotated[PrefillPools | None, Meta(description=(
        "pools for prompts; absent: one router chooses among all replicas for prompts"))] = None
    decode: Annotated[DecodePools | None, Meta(description=(
        "pools for output; absent: one router chooses among all replicas for output"))] = None

    def __post_init__(self):
        if self.prefill is None and self.decode is None:
            raise ValueError("give prefill, decode or both")

    @property
    def legs(self) -> dict[str, PoolSelection]:
        """Return the selection of each role that has one."""
        return {role: each.selection for role, each in (("prefill", self.prefill), ("decode", self.decode)) if each}
