"""The default of async_scheduling with drafts, by version."""
import pytest
from msgspec.structs import replace

from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.scheduling.vllm_defaults import completed

N_GRAMS = SpeculativeParameters(num_tokens=2, num_lookahead_tokens=0)


@pytest.mark.parametrize(("version", "plain", "with_n_grams"), [
    ("0.10", False, False), ("0.32", True, False), ("0.33", True, True)])
def test_vllm_schedules_asynchronously_by_default_as_its_version_does(version, plain, with_n_grams):
    given = VllmParameters(vllm_version=version)
    assert completed(given).async_scheduling is plain
    assert completed(replace(given, speculative=N_GRAMS)).async_scheduling is with_n_grams
    assert completed(replace(given, async_scheduling=False)).async_scheduling is False
