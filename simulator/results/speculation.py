"""The part of the summary about drafts: vLLM's counts of speculative decoding, under its names."""
from itertools import accumulate

from simulator.domain.run import Run


def metrics_of(run: Run) -> dict[str, dict]:
    """Return `speculation` of the summary; empty without speculative decoding.

    A draft is a verify step, a draft token a token that it verifies; all replicas and all requests count.
    `num_invalid_spec_tokens` were drafted and not verified, since a grammar rejects them or one before them; it is
    there where `draft_valid_rate` is below 1. `acceptance_rate` is the share of draft tokens that were accepted,
    `mean_acceptance_length` the tokens per draft, the token behind the accepted ones included. The last two lists are
    by position in a draft: how many were accepted there, and the share of all drafts. Where there are no drafts their
    statistics are None.

    Source: vllm-project/vllm, vllm/v1/spec_decode/metrics.py, SpecDecodingStats and SpecDecodingLogging.
    """
    counts = run.counts.get("speculation")
    if counts is None:
        return {}
    rejected = {name: counts[name] for name in ("num_invalid_spec_tokens",) if name in counts}
    steps, draft_tokens = counts["steps"], counts["num_draft_tokens"]
    drafts = sum(steps)
    by_position = list(accumulate(reversed(steps[1:])))[::-1]       # a token is accepted where all before it are
    accepted = sum(by_position)
    return {"speculation": {
        "num_drafts": drafts,
        "num_draft_tokens": draft_tokens,
        **rejected,
        "num_accepted_tokens": accepted,
        "acceptance_rate": accepted / draft_tokens if draft_tokens else None,
        "mean_acceptance_length": 1 + accepted / drafts if drafts else None,
        "num_accepted_tokens_per_pos": by_position,
        "per_position_acceptance_rates": [count / drafts if drafts else None for count in by_position],
    }}


def sentence(drafts: dict) -> str:
    """Return the share of accepted drafts, and the tokens per verify step."""
    if not drafts["num_draft_tokens"]:
        return "no drafts"
    return (f"{drafts['acceptance_rate']:.1%} of {drafts['num_draft_tokens']:,} draft tokens accepted, "
            f"{drafts['mean_acceptance_length']:.2f} tokens a step")
