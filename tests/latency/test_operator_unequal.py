"""Decodes of unequal contexts: between what the mean and what the longest of them take; by hand."""
import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.latency.operators.model import Operators
from simulator.latency.operators.unequal_contexts import DECODES, SHARES
from support.operator_profiles import UNEQUAL, write_layers, write_tables
from support.small_models import DENSE, deploy

# Of write_layers: n sequences of c tokens take n c / 100 us a layer, and there are two.
US = 1e3


def build(folder, cache, **parameters):
    return Operators(Operators.Parameters(path=str(folder), cache_directory=str(cache), **parameters), deploy(DENSE))


@pytest.fixture
def model(tmp_path):
    return build(write_layers(tmp_path, unequal=UNEQUAL), tmp_path / "cache")


def attention_ns(model, contexts, prefill=()):
    return model.breakdown(prefill=prefill, decode=contexts)["decode_attention"] * 1e9


@pytest.mark.parametrize(("contexts", "us"), [
    ([28] * 4, 1.12),                           # all alike
    # mean 28, a quarter of the way from 16 to 64: half of the way from 1.12 to 2.56 us
    ([16, 16, 16, 64], 1.84),
    # mean 52, three quarters of it: an eighth back, 2.08 - (2.56 - 2.08) / 8
    ([16, 64, 64, 64], 2.02),
    # two, mean 40, half of it: 0.8 + (1.28 - 0.8) / 4
    ([16, 64], 0.92),
    # three count as four, the nearer power of two; mean 32, a third: 0.96 + (1.92 - 0.96) / 2
    ([16, 16, 64], 1.44),
])
def test_time_lies_between_mean_and_longest(model, contexts, us):
    assert attention_ns(model, contexts) == pytest.approx(2 * us * US)


def test_groups_that_nobody_measured_take_the_middle_of_their_size(model):
    # four, mean 17.2 of 16 to 40.. a twentieth of the way: no row; of -0.125 and 0.5, four batches each, the first
    contexts = [16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 32]
    alone = attention_ns(model, [17] * 16)
    assert attention_ns(model, contexts) == pytest.approx(alone + (attention_ns(model, [32] * 16) - alone) * 0.25)


def test_a_batch_of_unlike_contexts_is_priced_whole(model):
    parts = model.breakdown(decode=[16, 16, 16, 64])
    assert model.predict(decode=[16, 16, 16, 64]) == pytest.approx(sum(parts.values()))
    assert model.provenance()["operators"]["unequal contexts"] == "measured"


def test_beside_prompts_other_shares_count(model):
    # of the rows of 128 and more prompt tokens the middle batch has 0.75
    plain = attention_ns(model, [28] * 4, [(128, 0)])
    longest = attention_ns(model, [64] * 4, [(128, 0)])
    assert attention_ns(model, [16, 16, 16, 64], [(128, 0)]) == pytest.approx(plain + 0.75 * (longest - plain))


def test_drafts_are_priced_by_the_mean_and_it_is_told(model):
    assert attention_ns(model, [28] * 4) == pytest.approx(
        model.breakdown(decode=[16, 16, 16, 64], tokens_per_decode=2)["decode_attention"] * 1e9)
    assert any("verified drafts" in told for told in model.warnings())


@pytest.mark.parametrize("is_left_out", [True, False])
def test_without_the_price_or_the_table_the_mean_counts(tmp_path, is_left_out):
    folder = write_layers(tmp_path, unequal=UNEQUAL if is_left_out else ())
    model = build(folder, tmp_path / "cache", without=("unequal_contexts",) if is_left_out else ())
    assert not model.prices_spread and attention_ns(model, [16, 16, 16, 64]) == pytest.approx(2 * 1.12 * US)


def test_tables_of_others_hold_no_shares(tmp_path):
    assert not build(write_tables(tmp_path / "tables"), tmp_path / "cache").prices_spread


def test_the_composed_table_is_the_one_that_was_composed(tmp_path):
    folder = write_layers(tmp_path, unequal=UNEQUAL)
    first, again = (build(folder, tmp_path / "cache").tables.unequal for _ in range(2))
    assert first.shape == (2, len(DECODES), len(SHARES)) and np.array_equal(first, again)


def test_a_label_of_another_form_is_named(tmp_path):
    folder = write_layers(tmp_path, unequal=("0,four,sr<=40%,kvB<=1k,kp=0,0.5,4",))
    with pytest.raises(InputErrors, match=r'skew_fit.csv: n_label: .*found "four"'):
        build(folder, tmp_path / "cache")
