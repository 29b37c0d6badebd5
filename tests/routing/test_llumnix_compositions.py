"""Any metric, filter and selector of Llumnix may stand in the composition of any infer type."""
import json

import msgspec
import numpy as np
import pytest

from routing.faces import context_of, view_of, workload
from simulator.routing.llumnix.composition import (
    FAILOVER_DOMAINS,
    FILTER_NAMES,
    INFER_TYPES,
    METRIC_NAMES,
    SELECTOR_NAMES,
)
from simulator.routing.llumnix.router import Llumnix, LlumnixParameters

METRICS = [name for name in METRIC_NAMES if name not in ("num_requests_lite", "num_tokens")]    # in full mode
FIELDS = {      # of five replicas; none is best by all metrics
    "num_blocks": 100, "block_size": 16, "iterations": 1, "max_batched_tokens": 2048, "time_ns": 0,
    "running": [4, 2, 6, 3, 5], "waiting": [2, 3, 1, 4, 5], "used_blocks": [70, 20, 50, 90, 40],
    "running_tokens": [400, 900, 1200, 150, 800], "waiting_tokens": [300, 800, 90, 640, 1000],
    "waiting_prefill_tokens": [200, 700, 50, 600, 950], "running_prefill_tokens": [100, 0, 700, 30, 500],
    "unallocated_prefill_tokens": [50, 0, 600, 10, 400], "node": [0, 0, 1, 1, 2], "unit": [0, 0, 1, 1, 1]}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    (folder / "ttft.json").write_text(json.dumps(
        {"results": [{"tokens_num": tokens, "p50": 0.1 * tokens} for tokens in (0, 8192)]}))
    (folder / "tpot.json").write_text(json.dumps({"results": [
        {"batch_size": size, "tokens_per_request": tokens, "p50": 10 + size + tokens / 1000}
        for size in (1, 64) for tokens in (8, 100_000)]}))
    return {f"{kind}_profiling_data_path": str(folder / f"{kind}.json") for kind in ("ttft", "tpot")}


def choose(infer_type, composition, tables, **fields):
    """Return the replica that a composition chooses, and the scores of all, among replicas of one infer type."""
    view = view_of(5, **FIELDS | {"infer_type": INFER_TYPES.index(infer_type)} | fields)
    keys = {"infer_types": [{"infer_type": infer_type} | composition], **tables}
    router = Llumnix(msgspec.convert(keys, LlumnixParameters), context_of(view, workload([600])))
    if infer_type == "decode":
        return router.choose_decode_replica(0, 0), None
    scores = router.scores(0, 0)
    return router.choose_replica(0, 0), scores


@pytest.mark.parametrize("metric", METRICS)
def test_any_metric_selects_and_filters_in_any_infer_type(metric, tables):
    one_of_two = {"selector": {"metrics": [metric], "top_k": 2}}
    best, scores = choose("neutral", {"selector": {"metrics": [metric]}}, tables)
    assert scores[best] == scores.max()
    more_is_better = metric in ("kv_cache_hit_len", "freeness")
    threshold = float(np.median(scores if more_is_better else -scores))
    filters = [{"name": "metric", "metric": metric, "threshold": threshold, "skip_in_fallback": False}]
    by_other = {"filters": filters, "selector": {"metrics": ["num_requests", metric]}}
    filtered, passing = choose("neutral", by_other, tables)
    kept = scores > np.median(scores)           # strictly better than the threshold
    assert (np.isfinite(passing) == kept).all()
    assert (filtered >= 0) == kept.any()
    for infer_type in ("prefill", "decode"):
        assert choose(infer_type, {"selector": {"metrics": [metric]}}, tables)[0] in np.flatnonzero(
            scores == scores.max())
        assert choose(infer_type, by_other, tables)[0] == filtered
    for infer_type in INFER_TYPES:
        assert scores[choose(infer_type, one_of_two, tables)[0]] >= np.sort(scores)[-2]


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("infer_type", INFER_TYPES)
@pytest.mark.parametrize("name", FILTER_NAMES)
def test_any_filter_rejects_in_any_infer_type(name, infer_type, invert, tables):
    # Replica 1 is closed and never chosen. Of the others 0 comes first by projected use, (70 x 16 + 200 + 50) / 1600;
    # more than 3.5 wait at 3 and 4. Nothing but 1 could be a source of failover.
    own = {"metric": {"metric": "num_waiting_requests", "threshold": 3.5}, "infer_type": {"infer_type": infer_type},
           "reserved": {"infer_type": "prefill"}, "staleness": {"instance_staleness_s": 60}}.get(name, {})
    composition = {"filters": [{"name": name, "invert": invert, **own}],
                   "selector": {"metrics": ["kv_cache_usage_ratio_projected"]}}
    chosen, _ = choose(infer_type, composition, tables, is_routable=[1, 0, 1, 1, 1])
    kept = {"metric": 4}.get(name, -1)
    assert chosen == (kept if invert != (name == "failover_migration_source") else 0)


@pytest.mark.parametrize("domain", FAILOVER_DOMAINS)
@pytest.mark.parametrize("infer_type", INFER_TYPES)
def test_any_failover_domain_holds_in_any_infer_type(domain, infer_type, tables):
    # Replica 1 is closed, and with it node 0; units fail as a whole where replicas of one work in step.
    filters = [{"name": "schedulability"}, {"name": "failover", "failover_domain": domain}]
    composition = {"filters": filters, "selector": {"metrics": ["num_waiting_requests"]}}
    chosen, _ = choose(infer_type, composition, tables, is_routable=[1, 0, 1, 1, 1], waiting=[0, 0, 5, 6, 7])
    assert chosen == (2 if domain in ("node", "node-unit") else 0)


@pytest.mark.parametrize("infer_type", INFER_TYPES)
@pytest.mark.parametrize("name", SELECTOR_NAMES)
def test_any_selector_chooses_in_any_infer_type(name, infer_type, tables):
    selector = {"name": name} | ({"metrics": ["num_requests"]} if name == "metric" else {})
    chosen, _ = choose(infer_type, {"filters": [{"name": "schedulability"}], "selector": selector}, tables,
                       is_routable=[1, 1, 1, 0, 1])
    assert chosen in {0, 1, 2, 4}
