"""Rules of vLLM's configuration that differ by version, as a row each. Source: vLLM 0.32.0 and 0.33.0, vllm/config."""
from typing import NamedTuple


class Rules(NamedTuple):
    """Rules of one version."""

    checks_kv_dtype: bool       # a 16-bit KV dtype must be the model's
    cuts_to_draft: bool         # an independent draft model may cut the length
    has_medusa: bool            # medusa and mlp_speculator exist
    judges_all_runners: bool    # asynchronous scheduling asks about drafts under the second model runner, too
    has_lookahead: bool         # hashes of blocks may look ahead
    has_late_graphs: bool       # graphs.BREAKABLE_SINCE_033


RULES = {
    "0.32": Rules(False, False, True, True, False, False),
    "0.33": Rules(True, True, False, False, True, True)}
