"""How many recorded cases each parity test compares and how many it leaves out: the table of README.md.

`PYTHONPATH=tests python -m parity.census` prints it for the recorded cases at hand.
"""
import hashlib
from collections import Counter

from parity import (
    test_aicb,
    test_sglang,
    test_simai_analytical,
    test_simai_ns3,
    test_simai_pd,
    test_vidur,
    test_vidur_tables,
    test_vllm,
    test_vllm_dp,
    test_vllm_files,
    test_vllm_pd,
    test_vllm_waves,
)
from support import goldens

TESTS = (
    ("`test_vllm.py`", "scenarios", test_vllm),
    ("`test_vllm_files.py`", "scenarios", test_vllm_files),
    ("`test_vllm_dp.py`", "choices of an engine", test_vllm_dp),
    ("`test_vllm_waves.py`", "waves of data-parallel ranks", test_vllm_waves),
    ("`test_vllm_pd.py`", "pairs of engines", test_vllm_pd),
    ("`test_sglang.py`", "scenarios", test_sglang),
    ("`test_vidur_tables.py`", "runs", test_vidur_tables),
    ("`test_vidur.py`", "runs", test_vidur),
    ("`test_aicb.py`", "runs", test_aicb),
    ("`test_simai_analytical.py`", "collectives", test_simai_analytical),
    ("`test_simai_ns3.py`", "collectives", test_simai_ns3),
    ("`test_simai_pd.py`", "runs with prompts apart", test_simai_pd),
)
COUNTED = (*goldens.families(), "vidur", "vidurali", "simai", "sglang")


def rows():
    """Return the lines of the table."""
    found = [(name, unit, *module.census()) for name, unit, module in TESTS]
    return [table_row(*each) for each in found]


def by_version():
    """Return recorded and compared runs by engine and version: the rows of engines/recorded.toml."""
    found = []
    for what, module in (("scenarios", test_vllm), ("waves of data-parallel ranks", test_vllm_waves),
                         ("prefill/decode pairs", test_vllm_pd)):
        recorded, compared = Counter(), Counter()
        for path in module.CASES:
            version = goldens.version_of(goldens.log_path(path))
            recorded[version] += 1
            compared[version] += module is not test_vllm or not test_vllm.missing(goldens.read_scenario(path))
        found += [{"engine": "vllm", "version": version, "what": what, "recorded": recorded[version],
                   "compared": compared[version]} for version in sorted(recorded)]
    recorded, reasons = test_sglang.census()
    return [*found, {"engine": "sglang", "version": "0.5.23", "what": "scenarios", "recorded": recorded,
                     "compared": recorded - sum(reasons.values())}]


def fingerprint():
    """Return what tells one set of recorded cases from another: the names of all files."""
    names = sorted(str(path.relative_to(goldens.GOLDENS)) for family in COUNTED
                   for path in (goldens.GOLDENS / family).rglob("*") if path.is_file())
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def table_row(name, unit, recorded, reasons):
    """Return a line of the table; `reasons`: why cases are left out, and how many."""
    left_out = "; ".join(f"{count}: {reason}" for reason, count in sorted(
        reasons.items(), key=lambda each: (-each[1], each[0])))
    return f"| {name} | {recorded} {unit} | {recorded - sum(reasons.values())} | {left_out or 'none'} |"


if __name__ == "__main__":
    print("\n".join(rows()), f"\n{fingerprint()}", *by_version(), sep="\n")
