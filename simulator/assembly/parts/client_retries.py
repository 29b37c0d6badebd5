"""Clients that send failed requests again, for [workload.client_retry]."""
import math
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.domain import records
from simulator.domain.client_retry import ClientRetry
from simulator.domain.columns import Column
from simulator.results.summary_keys import keys_of
from simulator.workload.limits import MISSING

KEY = "workload.client_retry"
RETRIES = Feature("client retries", KEY)
NOTES = (
    f"{KEY}: times to first token and to the end count from the first arrival; tokens of an earlier attempt are void",
    f"{KEY}: a request that is still under way between gateway and replica, or in a batch in flight, when its client "
    "sends it again, arrives once that has passed")


def without_resends(feature: Feature) -> tuple[Conflict, ...]:
    """Return the rows of a feature that sends failed requests again."""
    return (
        Conflict(feature, has.ROLES, "the remains of an attempt at two replicas are not settled"),
        Conflict(feature, Feature("encode pools", "embeddings", phrase='pools of role "encode"'),
                 "the remains of an attempt at encoders are not settled"),
        Conflict(feature, Feature("programs of agents", "cluster.programs"),
                 "a turn that is sent again would count as two"),
        Conflict(feature, Feature("clients that give up at the end of a load", "workload.load.grace_s", math.inf,
                                  value=_grace_s, phrase="workload.load.grace_s"),
                 "clients that stop send nothing again"))


def _grace_s(place):
    """Return after how long clients give up at the end of a load; None: they do not."""
    load = getattr(place.workload, "load", None)
    stops = load is not None and math.isfinite(load.grace_s)
    return load.grace_s if stops else None


def _clients(kind, settings, fleet, gateways, plan, gateway_of):
    return kind(fleet, gateways, plan, settings, gateway_of)


class ClientRetries(Part):
    """Clients that send failed requests again."""

    keys = {KEY: Annotated[ClientRetry | None, Meta(description=(
        "clients send failed requests again; absent: a request that fails has ended"))]}
    columns = {
        "client_attempts": Column("", "times that the client sent the request", "max"),
        "client_sent_ns": Column("ns", "when the client sent the request last", "max")}
    summary_before = "itl_ms"
    summary_keys = {
        **keys_of(client_retries__retries="times that clients sent a request again",
                  client_retries__retried="requests that were sent again",
                  client_retries__completed="requests of client_retries.retried that completed",
                  client_retries__over_budget="retries that were not sent, as budget_share was spent"),
        **keys_of("tokens", client_retries__computed_tokens="prompt and output tokens computed by all replicas",
                  client_retries__useful_tokens="tokens of computed_tokens in the last attempts of completed requests, "
                  "each counted once"),
        **keys_of("share", client_retries__wasted_share="share of computed_tokens that is not useful: attempts that "
                  "were given up, requests that did not complete, and preemptions")}
    conflicts = (
        *without_resends(RETRIES),
        Conflict(Feature("timeouts of client retries", f"{KEY}.timeout_s"),
                 Feature("clients that wait on after their deadline", "workload.cancel_at_deadline", True),
                 "such clients never give up"),
    )

    @property
    def _settings(self) -> ClientRetry:
        return self.experiment.workload.client_retry

    def requests(self, columns, seed: int):
        """See Part; requests without a deadline get `timeout_s`."""
        if self._settings.timeout_s is None:
            return columns
        own = columns.timeout_ns if columns.timeout_ns is not None else np.full(len(columns), MISSING)
        return replace(columns, timeout_ns=np.where(own == MISSING, round(self._settings.timeout_s * 1e9), own))

    def plan(self, plan, sink):
        """See Part; a request may find the KV of its earlier attempts."""
        from simulator.engine.operations import client_retries

        return replace(super().plan(plan, sink), keeps_journeys=True, keeps_legs=True,
                       resends=partial(_clients, client_retries.ClientRetries, self._settings))

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        requests, attempts = run.workload.requests, run.columns["client_attempts"]
        is_done = requests["status"] == records.COMPLETED
        computed = int(run.replicas["prefill_tokens"].sum() + run.replicas["decode_tokens"].sum())
        own = requests[is_done]
        useful = int((own["prompt_tokens"] - own["cached_tokens"] + np.maximum(own["output_tokens"] - 1, 0)).sum())
        return {"client_retries": {
            "retries": int((attempts - 1).sum()), "retried": int((attempts > 1).sum()),
            "completed": int((is_done & (attempts > 1)).sum()),
            "over_budget": run.records["client_retries_over_budget"],
            "computed_tokens": computed, "useful_tokens": useful,
            "wasted_share": 1 - useful / computed if computed else 0.0}, "diagnosis": list(NOTES)}
