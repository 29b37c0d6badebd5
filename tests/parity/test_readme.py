"""README.md says how many recorded cases are compared; its table is what the tests count."""
from pathlib import Path

import pytest
import tomli

from parity import census
from support.goldens import GOLDENS

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("README.md")
COUNTED = "d891b1fbeeda191e"        # the set of recorded cases that the page counts, by `census.fingerprint`


def test_the_page_counts_what_the_tests_compare():
    if not GOLDENS.is_dir():
        pytest.skip(f"no recorded cases under {GOLDENS}")
    if census.fingerprint() != COUNTED:
        pytest.skip(f"{GOLDENS} holds other cases than the page counts")
    lines = PAGE.read_text(encoding="utf-8").splitlines()

    assert [row for row in census.rows() if row not in lines] == []


def test_the_facts_of_engines_count_the_same_runs():
    if census.fingerprint() != COUNTED:
        pytest.skip(f"{GOLDENS} holds other cases than are counted")

    assert tomli.loads((ROOT / "engines/recorded.toml").read_text(encoding="utf-8"))["rows"] == census.by_version()


def test_a_row_of_the_table_gives_reasons_by_their_number():
    assert census.table_row("`t`", "runs", 9, {"b": 2, "a": 2, "c": 4}) == "| `t` | 9 runs | 1 | 4: c; 2: a; 2: b |"
    assert census.table_row("`t`", "runs", 9, {}) == "| `t` | 9 runs | 9 | none |"
