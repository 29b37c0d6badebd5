"""Versions of vLLM differ by rows of one table; nothing else compares them."""
import re
from pathlib import Path

import pytest

from simulator.domain.vllm_versions import FLAGS, NEWEST, VERSIONS, VllmBehaviour, behaviour_of, complete, versions_that

SIMULATOR = Path(__file__).parents[2] / "simulator"
COMPARED = re.compile(r"""[!=]=\s*["']\d+\.\d+["']|["']\d+\.\d+["']\s*[!=]=|\bin \(?["']0\.\d+["']""")


def test_no_module_compares_a_version():
    found = [f"{path.relative_to(SIMULATOR)}:{number}: {line.strip()}"
             for path in SIMULATOR.rglob("*.py*") if path.suffix in (".py", ".pyx", ".pxd")
             for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if COMPARED.search(line)]

    assert found == []


def test_a_row_without_all_fields_fails():
    with pytest.raises(TypeError, match="missing"):
        VllmBehaviour(release="0.33.0", is_async_by_default=True)


def test_a_table_of_facts_that_lacks_a_version_fails():
    with pytest.raises(ValueError, match=r"vLLM 0\.32, 0\.33: no row in a table of facts by version, which has \['0"):
        complete({"0.10": 1})


def test_an_engine_without_versions_is_the_newest_and_an_unknown_version_an_error():
    assert behaviour_of(None) is VERSIONS[NEWEST]
    with pytest.raises(KeyError):
        behaviour_of("0.99")


def test_messages_name_the_versions_that_have_a_quality():
    assert versions_that("has_encoder") == '"0.32" or "0.33"'
    assert versions_that("release") == '"0.10" or "0.32" or "0.33"'


def test_flags_of_a_version_are_among_those_that_are_told_apart():
    assert all(row.flags <= FLAGS for row in VERSIONS.values())
