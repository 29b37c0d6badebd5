"""Schedulers and latency backends: rows of the table of conflicts."""
from simulator.config import features as has
from simulator.config.conflicts import Agreement, Conflict, Feature, without

UNCERTAINTY = Feature("intervals of uncertainty", "latency.uncertainty", False)
OF_UNCERTAINTY = ("latency.uncertainty_replications", "latency.uncertainty_share")
CONFLICTS = (
    Conflict(has.POOLING, has.STRUCTURED, "pooling has no output that a grammar could restrict"),
    Conflict(has.POOLING, has.ROLES, "pooling has no output, and no decode that could be elsewhere"),
    Conflict(has.SGLANG_GRAMMARS, has.ROLES, "replicas of both pools compile a grammar when they read its "
             "request, before pages are reserved; here a prompt is sent to its replica when they are"),
    Conflict(has.INTERVAL, has.versions_without("holds_prompts_alone"),
             "it has them for data-parallel ranks alone, in [engine.data_parallel]"),
    *(Conflict(limit, has.ROLES, "the answer of a proxy is not settled where one of the servers of a request refuses")
      for limit in (has.QUEUED_REQS, has.QUEUED_TOKENS)),
    Conflict(has.PIPELINE, has.SCHEDULER, lambda place: "" if place.facts.takes_stages else "it supports no stages",
             "some schedulers support no stages"),
    Conflict(has.ASYNC, has.PIPELINE, lambda place: place.facts.why_no_async_stages * place.facts.takes_stages,
             "vLLM 0.10 refuses it with them"),
    Conflict(UNCERTAINTY, has.backends_without("known errors", "knows_errors"), "its times are given or fitted, with "
             'unknown errors of operators; "forest", "operators" and "roofline" know errors'),
    *(Conflict(Feature("settings of intervals", key), without(UNCERTAINTY), "there are no intervals")
      for key in OF_UNCERTAINTY),
    Agreement((UNCERTAINTY.key, *OF_UNCERTAINTY), lambda one, two: "all pools of a run vary together",
              "all pools", "all pools of a run vary together"),
    Conflict(Feature("collective models", "latency.collective"),
             has.backends_without("collectives", "takes_collective"), "it has no collectives to replace"),
    *(Conflict(Feature("sizes of CUDA graphs", f"engine.{key}"),
               has.backends_without("prices of padded batches", "takes_padding"),
               'it cannot price padded batches: "linear", "roofline" and "operators" can')
      for key in ("cuda_graphs", "cuda_graph_max_bs_decode", "cuda_graph_bs_decode")),
)
