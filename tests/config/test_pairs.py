"""Every pair of features runs to the end, or is refused with the reason that a row of the table has."""
import re

import pytest

from simulator.config import conflicts
from support import pairs, row_cases

# Refusals of pairs of features that are no rows, and the place that has their text.
ELSEWHERE = (
    r"unknown key", r'expected none with "sglang": ', r"engine\.lora\.",                # the keys of a scheduler
    r"engine\.speculative\.method: missing", r"speculative: expected none, .* has recurrent states",
    r"engine\.(prefix_match_unit|speculative|vllm_version|encoder): .*(layers|states|enable_prefix|0\.10)",
    r"topology: .* (but .* has|is not divisible)",                                      # facts of the model
    r"cluster\.regions\.replicas: (with|expected a sum)",
    r"kv_tiers\.secondary: levels below host memory are not built",
    r"encoders of their own are those of vLLM", r'pool "e" encodes for this one', r"the power draw of encoders",
)


SHARES = 20             # of the pairs, each a test


def outcomes(which):
    """Return {pair: (faults or None, those that rows made)}, and the rows that refused a pair."""
    with pairs.Listening() as heard:
        return {pair: pairs.outcome(heard, *pair) for pair in which}, heard.rows


@pytest.mark.parametrize("feature", pairs.FEATURES)
def test_each_feature_runs_alone(feature):
    with pairs.Listening() as heard:
        assert pairs.outcome(heard, feature) == (None, [])


@pytest.mark.parametrize("share", range(SHARES))
def test_a_pair_runs_or_is_refused_with_its_reason(share):
    found, _ = outcomes(list(pairs.pairs())[share::SHARES])
    silent = {pair: fault for pair, (faults, made) in found.items() for fault in faults or ()
              if fault not in made and not any(re.search(text, fault) for text in ELSEWHERE)}
    assert not silent
    assert sum(faults is None for faults, _ in found.values()) >= 1000 / SHARES


@pytest.mark.ci
def test_every_row_refuses_something():
    rows = {row for row in conflicts.rows() if isinstance(row, conflicts.Conflict)}
    with pairs.Listening() as heard:
        for settings in row_cases.CASES:
            faults, made = pairs.refusal(heard, settings)
            assert made, (settings, faults)
        for pair in (*row_cases.PAIRS, *pairs.pairs()):         # all pairs, for a row that is younger than PAIRS
            if rows <= heard.rows:
                break
            pairs.outcome(heard, *pair)
    assert not [row for row in rows if row not in heard.rows]


def test_each_row_has_words_for_the_page():
    for row in conflicts.rows():
        assert isinstance(row.why, str) or row.text
