"""Rules of vLLM's configuration that differ by version, as a row each. Source: vLLM 0.32.0 and 0.33.0, vllm/config."""
from typing import NamedTuple

from simulator.errors import InputErrors


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


def rules_of(version: str) -> Rules:
    """Return the rules of a version.

    Raises
    ------
    InputErrors
        The flags of the version are known, its rules are not.
    """
    if version not in RULES:
        raise InputErrors([f"vLLM {version}: its flags are known, the rules of its defaults are not: "
                           f"simulator/server_line/vllm/rules.py has {', '.join(RULES)}; --version "
                           f"{next(reversed(RULES))} takes those"])
    return RULES[version]
