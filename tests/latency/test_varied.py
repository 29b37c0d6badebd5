"""Models whose operators take more or less time: all of them twice as long is an iteration twice as long."""
import pytest

from simulator.latency.operators.model import Operators
from simulator.latency.roofline.law_errors import law_error
from simulator.latency.roofline.model import Roofline
from support.operator_profiles import write_tables
from support.small_models import DENSE, LATENT, MIXTURE, RECURRENT, SLIDING, deploy

MODELS = {"dense": DENSE, "latent": LATENT, "mixture": MIXTURE, "recurrent": RECURRENT, "sliding": SLIDING}
BATCHES = (([(40, 0), (8, 16)], [4, 9]), ([], [30] * 3), ([(64, 0)], []))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_roofline_of_operators_twice_as_long_is_twice_as_long(model, ranks):
    deployment = deploy(model, tensor_parallel=ranks)
    errors, _ = Roofline.errors(Roofline.Parameters(), deployment)
    given = Roofline.varied({}, errors, dict.fromkeys(errors, (2.0, 2.0)))
    plain, twice = Roofline(Roofline.Parameters(), deployment), Roofline(Roofline.Parameters(), deployment, **given)

    assert [twice.predict(*batch) for batch in BATCHES] == pytest.approx(
        [2 * plain.predict(*batch) for batch in BATCHES])


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_tables_of_operators_twice_as_long_are_twice_as_long_and_parts_add_up(model, ranks, tmp_path):
    deployment = deploy(model, tensor_parallel=ranks)
    parameters = Operators.Parameters(path=str(write_tables(tmp_path / "tables")), cache_directory=str(tmp_path))
    reading = Operators.read(parameters, deployment)
    errors, _ = Operators.errors(parameters, deployment)

    def with_factors(factors):
        return Operators(parameters, deployment, **Operators.varied({"reading": reading}, errors, factors))

    nothing = dict.fromkeys(errors, (0.0, 0.0))
    plain, twice = with_factors({}), with_factors(dict.fromkeys(errors, (2.0, 2.0)))
    parts = [with_factors(nothing | {name: (1.0, 1.0)}) for name in errors]
    for batch in BATCHES:
        assert twice.predict(*batch) == pytest.approx(2 * plain.predict(*batch))
        assert sum(part.predict(*batch) for part in parts) == pytest.approx(plain.predict(*batch))


def test_a_system_that_the_laws_were_fitted_to_has_their_error_others_that_of_one_left_out():
    deployment = deploy(DENSE)
    h100 = type("H100", (), {"name": "h100-sxm-80gb", "compute_dtype": staticmethod(lambda dtype: dtype)})

    # tools/README.md, products bfloat16, h100_sxm
    assert law_error("products", "bfloat16", h100)[0] == 0.111
    assert law_error("products", "bfloat16", h100, by_share=True)[0] == 0.170
    # the mean of 18.1, 11.9, 10.7, 27.9, 15.3, 17.2, 15.5, 14.1 and 23.9 %
    assert law_error("products", "bfloat16", deployment.accelerator)[0] == pytest.approx(0.1718, abs=1e-3)
