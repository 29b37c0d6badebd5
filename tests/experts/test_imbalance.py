"""Expected imbalance: closed cases by hand, drawn multinomials, popularity."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.experts import Dbo, Eplb, Popularity
from simulator.errors import InputErrors
from simulator.experts.imbalance import MOST_TOKENS, expected_largest, expert_load, imbalance
from simulator.experts.popularity import chosen_frac, loads_of


def test_of_many_choices_it_is_the_largest_share():
    assert imbalance(np.array([[0.4, 0.3, 0.2, 0.1]]), np.inf).tolist() == [pytest.approx(1.6)]


def test_of_equal_shares_it_is_the_noise_alone():
    # 8 ranks, 800 choices: 100 each, deviation sqrt(800 x 1/8 x 7/8) = 9.354, of which z_8 = 1.4342
    assert imbalance(np.full((1, 8), 1 / 8), 800)[0] == pytest.approx(1 + 1.4342 * 9.354 / 100, rel=1e-3)


def test_the_largest_of_normals_is_bloms():
    assert expected_largest(8)[[0, 1, 7]] == pytest.approx([0.0, 0.5895, 1.4342], abs=1e-3)


def test_one_rank_is_always_balanced():
    assert imbalance(np.ones((2, 1)), 3).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("shares", [
    np.full(8, 1 / 8), np.full(32, 1 / 32), np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]),
    np.arange(1.0, 17) ** -0.5 / (np.arange(1.0, 17) ** -0.5).sum()])
@pytest.mark.parametrize("choices", [64, 1024, 16384])
def test_drawn_multinomials_have_a_largest_like_that(shares, choices):
    drawn = np.random.default_rng(7).multinomial(choices, shares, size=4000).max(axis=1).mean()

    tolerance = 0.05 if choices >= 16 * len(shares) else 0.1        # few choices a rank are skew, normals are not
    assert imbalance(shares[None, :], choices)[0] == pytest.approx(drawn * len(shares) / choices, rel=tolerance)


@given(st.lists(st.integers(1, 100), min_size=2, max_size=12), st.integers(1, 10_000))
def test_it_lies_between_the_largest_share_and_all_on_one(loads, choices):
    shares = np.array([loads]) / sum(loads)
    found = imbalance(shares, choices)[0]

    assert shares.max() * len(loads) - 1e-9 <= found <= len(loads)
    assert imbalance(shares, 2 * choices)[0] <= found + 1e-12


def test_experts_that_are_chosen_evenly_are_needed_as_the_roofline_counts():
    # 8 experts, 2 a token, on 4 ranks: 2 (1 - (3/4)^n) of each
    load = expert_load(np.full((1, 4), 0.25), np.full((1, 4, 2), 0.25), 2)

    assert load.activated[[0, 1, 2, 3]] == pytest.approx([0, 0.5, 0.875, 2 * (1 - 0.75 ** 3)])
    assert load.activated[-1] == pytest.approx(2)
    assert load.expected == pytest.approx(1)


def test_the_busiest_rank_never_has_less_to_do_with_more_tokens():
    load = expert_load(np.array([[0.5, 0.3, 0.2]]), np.array([[[1.0], [0.6], [0.4]]]), 2)
    tokens = np.arange(MOST_TOKENS + 1)

    assert (np.diff(tokens * load.imbalance) > -1e-9).all()
    assert (np.diff(load.activated) >= 0).all()
    assert load.tokens(np.array([10 * MOST_TOKENS]))[0] == 10 * MOST_TOKENS * load.imbalance[-1]


def test_no_token_chooses_an_expert_twice():
    # 0.7 x 2 is more than once: 1, and the second choice falls to the others, 2 : 1
    assert chosen_frac(np.array([[0.7, 0.2, 0.1]]), 2)[0] == pytest.approx([1.0, 2 / 3, 1 / 3])


@given(st.lists(st.integers(1, 1000), min_size=4, max_size=20), st.integers(1, 4))
def test_choices_add_up_and_none_is_above_one(loads, chosen):
    fracs = chosen_frac(np.array([loads]) / sum(loads), chosen)[0]

    assert fracs.sum() == pytest.approx(chosen)
    assert fracs.max() <= 1 + 1e-12
    assert (np.diff(fracs[np.argsort(loads)]) >= -1e-12).all()      # who is chosen more often stays so


def test_too_few_experts_with_a_load_are_refused():
    with pytest.raises(ValueError, match="2 experts a token, but only 1 of a layer have a load"):
        chosen_frac(np.array([[1.0, 0.0, 0.0]]), 2)


def test_zipf_is_permuted_by_layer_and_draw_and_always_the_same():
    zipf = Popularity(distribution="zipf", s=1.0)
    first = loads_of(zipf, 4, 3)

    assert np.sort(first, axis=1)[:, ::-1] == pytest.approx(np.tile(np.array([12, 6, 4, 3]) / 25, (3, 1)))
    assert len({tuple(row) for row in loads_of(zipf, 64, 3)}) == 3
    assert (loads_of(zipf, 64, 3, 5) == loads_of(zipf, 64, 3, 5)).all()
    assert (loads_of(zipf, 64, 3, 5) != loads_of(zipf, 64, 3, 4)).any()
    assert (loads_of(Popularity(distribution="zipf", s=1.0, seed=1), 64, 3) != loads_of(zipf, 64, 3)).any()


def test_a_file_is_as_it_stands_until_it_drifts(tmp_path):
    path = tmp_path / "loads.csv"
    path.write_text("3,1,0,0\n0,0,2,2\n")
    table = Popularity(distribution="file", file=str(path))

    assert loads_of(table, 4, 2).tolist() == [[0.75, 0.25, 0, 0], [0, 0, 0.5, 0.5]]
    assert np.sort(loads_of(table, 4, 2, 1), axis=1).tolist() == [[0, 0, 0.25, 0.75], [0, 0, 0.5, 0.5]]
    path.write_text("3,1,0,0\n")
    assert loads_of(table, 4, 2).tolist() == [[0.75, 0.25, 0, 0]] * 2


@pytest.mark.parametrize(("text", "message"), [
    ("1,2,3\n", r"loads\.csv:1: expected 4 loads, one for each expert, found 3"),
    ("1,2,3,x\n", r'loads\.csv:1: expected a number from 0 to 1e\+15, found "x"'),
    ("1,1,1,1\n" * 3, r"expected one line, or 2, one for each layer with experts; found 3"),
    ("0,0,0,0\n", r"loads\.csv:1: all loads are 0"), ("", "found 0")])
def test_a_file_that_does_not_fit_is_named(text, message, tmp_path):
    path = tmp_path / "loads.csv"
    path.write_text(text)

    with pytest.raises(InputErrors, match=message):
        loads_of(Popularity(distribution="file", file=str(path)), 4, 2)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Popularity(distribution="zipf"), "s goes with"), (lambda: Popularity(s=1.0), "s goes with"),
    (lambda: Popularity(file="a"), "file goes with"), (lambda: Popularity(drift_steps=3), "change nothing"),
    (lambda: Dbo(comm_sms=10), "enabled = true"), (lambda: Dbo(enabled=True, comm_sms=132), "leaves none")])
def test_keys_that_do_not_go_together_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
    assert Eplb().step_interval == 3000
