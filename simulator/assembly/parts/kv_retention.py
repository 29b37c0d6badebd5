"""KV blocks held for programs while their tools run, [engine.kv_retention]: conflicts, counts in the summary."""
from functools import partial

from msgspec.structs import replace

from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.domain.kv_retention import Retention
from simulator.errors import InputErrors, KeyFault
from simulator.results.kv_retention import SUMMARY_KEYS
from simulator.workload.base import Workload
from simulator.workload.tool_times import expected, tool_times

KEY = "engine.kv_retention"
NO_SESSIONS = (f"{KEY}: expected requests with a session, a program is a session; found none: give a trace a column "
               'session, or workload.type = "sessions"')
NOTHING_SHARED = f"[{KEY}] held nothing: no turn ended with a text that a later prompt begins with"
LEFT = (f"[{KEY}] %d holds were open at the end of the run: their programs went on at other replicas, or their next "
        "turn did not come")
KNOWN_TIMES = (f"[{KEY}] clients declare whether a turn follows and, for predicted, how long its tool runs; held "
               "blocks never keep a request from being admitted")
SUMS = {"holds": "num_holds", "found": "num_found", "expired": "num_expired", "open": "num_open",
        "found_blocks": "blocks_found", "given_back_blocks": "blocks_given_back",
        "over_share_blocks": "blocks_over_share", "most_held_blocks": "most_set_aside"}


def _holding(parameters):
    """Return the keys by which a pool holds blocks; None: it holds none."""
    given = getattr(parameters, "kv_retention", None)
    return None if given is None or given.policy == "lru" else given


RETENTION = Feature("KV held for programs", f"{KEY}.policy", phrase=f"[{KEY}]", value=lambda place: (
    (given := _holding(place.engine.parameters)) and given.policy))


class KvRetention(Part):
    """Holding of KV blocks between the turns of programs."""

    conflicts = (
        Conflict(RETENTION, has.UNCACHED, "without a prefix cache no turn finds blocks"),
        Conflict(RETENTION, has.LAYER_GROUPS, "blocks of several tables would have to be held together"),
        Conflict(RETENTION, used.KV_TIERS, "a tier keeps evicted blocks, and follows the order of vLLM's free queue"),
        Conflict(RETENTION, has.ROLES, "the KV of a turn is at two replicas"),
        Conflict(RETENTION, used.MOVES, "a turn that moves leaves its blocks at another replica"),
        Conflict(RETENTION, Feature("failures of links", "failures[].kind", ("stop", "slow", "cache")),
                 "the blocks of requests behind a failed link are followed one by one"),
    )
    summary_before = "by_slo_class"
    summary_keys = SUMMARY_KEYS

    @property
    def _holds(self) -> bool:
        """Some pool holds blocks."""
        return any(_holding(pool.engine.parameters) for pool in self.experiment.all_pools())

    def meet(self, prepared) -> None:
        """See Part."""
        if self._holds and len(prepared.workload) and (prepared.workload.demands["session"] < 0).all():
            raise InputErrors([KeyFault(NO_SESSIONS)])

    def plan(self, plan, sink):
        """See Part; replicas keep pace, since turns may go to several."""
        pools = tuple(replace(pool, retention=partial(retention_of, given, plan.seed))
                      if (given := _holding(pool.parameters)) else pool for pool in plan.pools)
        return replace(super().plan(plan, sink), pools=pools, coupled=plan.coupled or self._holds)

    def report(self, run, cluster) -> None:
        """See Part: counts of all replicas."""
        if not self._holds:
            return
        caches = [kv for replica in cluster.replicas if hasattr(kv := replica.scheduler.kv, "num_holds")]
        run.records["kv_retention"] = {
            **{name: sum(getattr(kv, attribute) for kv in caches) for name, attribute in SUMS.items()},
            "held_token_s": sum(kv.held_block_s * kv.block_size for kv in caches)}

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        counts = run.records.get("kv_retention")
        if counts is None:
            return {}
        notes = [KNOWN_TIMES]
        if not counts["holds"]:
            notes.append(NOTHING_SHARED)
        if counts["open"]:
            notes.append(LEFT % counts["open"])
        return {"kv_retention": counts, "diagnosis": notes}


def retention_of(given, seed: int, workload: Workload) -> Retention:
    """Return the rules of a pool, and facts of a workload.

    given : KvRetentionParameters.
    """
    times = tool_times(workload)
    return Retention(given.policy, round((given.ttl_s or 0) * 1e9), given.max_share, workload.requests,
                     workload.demands, expected(times, workload, given.error_sigma, seed),
                     times.from_arrival)
