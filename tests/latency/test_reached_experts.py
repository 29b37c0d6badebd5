"""Experts behind an exchange, from tables in which each rank holds the tokens of all; by hand."""
import numpy as np
import pytest

from simulator.domain.facts import load_accelerator
from simulator.latency.operators.curves import Curve
from simulator.latency.operators.database import Database
from simulator.latency.operators.model import Operators
from simulator.latency.operators.reached_experts import ForeignTokens
from support.goldens import GOLDENS
from support.operator_profiles import MOE, nccl_rows, write_tables
from support.small_models import MIXTURE, deploy

H200 = GOLDENS.parent / "data" / "profiles" / "aiconfigurator" / "h200_sxm"
TOKENS = (1, 1024, 2048)
SITE = (64.0, 32.0, 2.0, 8.0, 1.0)


def rows_of(ways, token_us, load="balanced"):
    """Return experts of 10 us and `token_us` a token."""
    return [f"bfloat16,{count},64,32,2,8,1,{ways},{load},{0.01 + count * token_us * 1e-3:.9g}" for count in TOKENS]


EVEN = rows_of(1, 1.0) + rows_of(2, 0.6)        # t(e) = 10 us + T (0.2 us + 0.8 us / e)


@pytest.fixture
def experts_us(tmp_path):
    """Return the microseconds of the experts of decodes on two ranks, and the notes."""
    def of(rows, mode, sequences=1024, **parameters):
        folder = write_tables(tmp_path / "t", moe=None, nccl=nccl_rows(("alltoall", "all_gather", "reduce_scatter")))
        (folder / "moe_perf.csv").write_text("\n".join([MOE, *rows]) + "\n")
        chosen = Operators.Parameters(path=str(folder), cache_directory=str(tmp_path / "cache"), all2all_backend=mode,
                                      **parameters)
        model = Operators(chosen, deploy(MIXTURE, data_parallel=2, expert_parallel=2))
        return model.breakdown(decode=[4] * sequences)["experts"] * 1e6, [
            note for note in model.warnings() if "do not reach a rank" in note]
    return of


def test_gathered_tokens_count_as_measured(experts_us):
    assert experts_us(EVEN, None) == (pytest.approx(10 + 0.6 * 1024), [])


@pytest.mark.parametrize("mode", ["deepep_low_latency", "deepep_high_throughput", "flashinfer_nvlink_one_sided"])
def test_a_quarter_of_the_tokens_does_not_reach_one_of_two_ranks(experts_us, mode):
    found, notes = experts_us(EVEN, mode)

    assert found == pytest.approx(10 + (0.6 - 0.2 / 4) * 1024)          # (1/2)^2 chose two experts of the other rank
    assert len(notes) == 1 and mode in notes[0]
    assert notes[0].endswith("left out, by the even loads of one rank and of several")


def test_skewed_loads_lose_as_much_as_even_ones(experts_us):
    rows = EVEN + rows_of(1, 1.2, "power_law_1.01") + rows_of(2, 0.8, "power_law_1.01")

    assert experts_us(rows, "deepep_low_latency")[0] == pytest.approx(10 + (0.8 - 0.2 / 4) * 1024)


def test_without_even_loads_the_tokens_stay_in_the_price_and_a_note_has_it(experts_us):
    found, notes = experts_us(rows_of(2, 0.6), "deepep_low_latency")

    assert found == pytest.approx(10 + 0.6 * 1024)
    assert "is in the price, as no even loads" in notes[0]


def curve(token_ns):
    return Curve(np.array(TOKENS, float), 10e3 + token_ns * np.array(TOKENS, float))


def test_even_loads_longer_than_skewed_ones_borrow_from_other_mixtures():
    wide = (128.0, *SITE[1:])
    even = {(*SITE, 1.0): curve(1000), (*SITE, 2.0): curve(600), (*wide, 1.0): curve(2000), (*wide, 2.0): curve(1900)}
    foreign = ForeignTokens(even, {(*wide, 2.0): curve(1500)})

    assert foreign.token_ns((*SITE, 2.0)) == pytest.approx(200)
    assert foreign.token_ns((*wide, 2.0)) == pytest.approx(200 * (128 + 32) / (64 + 32))
    assert foreign.token_ns((*wide, 4.0)) is None


def test_a_ranks_share_of_one_ranks_time_stays():
    even = {(*SITE, 1.0): curve(1000), (*SITE, 2.0): curve(990)}        # 980 ns a token of others, by the law
    slow = Curve(np.array(TOKENS, float), np.array([10e3, 520e3, 1030e3]))

    assert ForeignTokens(even, {}).without(slow, (*SITE, 2.0)).ns.tolist() == pytest.approx(
        [10e3 - 245, (10e3 + 1024e3) / 2, (10e3 + 2048e3) / 2])


@pytest.mark.skipif(not H200.is_dir(), reason="needs ../shared/data/profiles/aiconfigurator")
def test_on_h200_all_even_mixtures_have_nearly_one_cost_per_element(tmp_path):
    tables = {}
    for load in ("balanced", "power_law_1.01"):
        chosen = Operators.Parameters(path=str(H200), cache_directory=str(tmp_path), expert_load=load)
        tables[load] = Database(chosen, load_accelerator("h200-sxm-141gb")).expert_tables.curves("bfloat16")
    foreign = ForeignTokens(*tables.values())

    costs = [foreign.token_ns(site) * 4800 / (site[2] * (site[0] + site[1]))        # bytes at 4.8 TB/s
             for site in tables["balanced"] if site[2] >= 4 and site[4:] == (1.0, 32.0)]
    assert len(costs) >= 10 and min(costs) > 7.5 and max(costs) < 11.5
