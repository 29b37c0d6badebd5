"""Collectives of whole iterations: sums, memory, and faults that pass."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collective.exchanges import Exchange, exchanges
from simulator.collective.per_iteration import IterationCollectives
from simulator.collective.table.model import Table
from simulator.domain.efficiency import COLLECTIVE_LATENCY_US
from simulator.errors import InputErrors
from simulator.latency.aicb.links import AicbLinks
from simulator.latency.roofline.model import Roofline
from support.small_models import DENSE, MIXTURE, NODE, deploy

NS = 1e-9


def links(deployment, latency_ns=0.0):
    """Return 1 byte/ns between tensor-parallel ranks, 0.5 between all others."""
    return AicbLinks(deployment, 1.0, 0.5, latency_ns)


def curve(tmp_path, **parameters):
    """Return a collective model that knows the all-reduces of two ranks, of 1000 to 4000 bytes."""
    path = tmp_path / "curves.csv"
    path.write_text("collective,num_ranks,ranks_per_node,num_bytes,time_us\n"
                    "all_reduce,2,2,1000,10\nall_reduce,2,2,4000,40\n")
    return Table(Table.Parameters(files=[str(path)], **parameters), deploy(node=NODE, tensor_parallel=2))


def test_each_exchange_is_priced_by_its_bytes_as_often_as_it_occurs():
    deployment = deploy(tensor_parallel=2, pipeline_parallel=2)
    model = IterationCollectives(links(deployment), exchanges(deployment))

    # 4 all-reduces x 2 x 1/2 of 10 x 128 bytes, one hand-over of 1280 bytes at 0.5 bytes/ns
    assert model.seconds(10) == pytest.approx([4 * 1280 * NS, 2560 * NS])


def test_more_exchanges_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="9 exchanges, at most 8 expected"):
        IterationCollectives(links(deploy()), [Exchange("tensor", "all_reduce", 1, 1.0, 1.0, 2)] * 9)


# ---- in the roofline

def roofline(model=DENSE, collective=None, **deployment):
    return Roofline(Roofline.Parameters(efficiency="shares"), deploy(model, **deployment), collective)


@pytest.mark.parametrize(("model", "ways", "expected_ns"), [
    # 4 all-reduces of 7 x 128 bytes, ring volume 2 x 1/2
    (DENSE, {"tensor_parallel": 2}, 4 * (900 + 7 * 128)),
    # one hand-over at half a byte/ns
    (DENSE, {"pipeline_parallel": 2}, 900 + 7 * 128 * 2),
    # two all-to-alls of 2 copies of half of the tokens, half of them to the other rank
    (MIXTURE, {"data_parallel": 2, "expert_parallel": 2}, 2 * (900 + 7 * 128 / 2 * 2)),
    # a gather and a scatter, of all tokens, half of them from the other rank
    (MIXTURE, {"data_parallel": 2}, 2 * (900 + 7 * 128 / 2 * 2)),
])
def test_all_collectives_of_the_roofline_go_through_the_model(model, ways, expected_ns):
    found = roofline(model, links(deploy(model, **ways), 900.0), **ways)

    assert found.breakdown(decode=[100] * 7)["collectives"] == pytest.approx(expected_ns * NS)


def test_a_collective_model_replaces_the_closed_form_alone():
    batch, ways = {"prefill": [(50, 0)], "decode": [100] * 7}, {"tensor_parallel": 2}
    closed, modelled = roofline(**ways), roofline(collective=links(deploy(**ways)), **ways)

    ours, theirs = closed.breakdown(**batch), modelled.breakdown(**batch)

    # 57 tokens x 128 bytes, 4 times; the latencies of 4 collectives are the model's
    assert theirs.pop("collectives") == pytest.approx(4 * 57 * 128 * NS)
    assert ours.pop("latencies") - theirs.pop("latencies") == pytest.approx(
        4 * COLLECTIVE_LATENCY_US * 1e-6)
    ours.pop("collectives")
    assert ours == theirs


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_what_was_asked_before_does_not_matter(counts):
    ways = {"tensor_parallel": 2}
    model = roofline(collective=links(deploy(**ways), 900.0), **ways)

    for count in counts:
        fresh = roofline(collective=links(deploy(**ways), 900.0), **ways)
        assert model.predict(decode=[100] * count) == fresh.predict(decode=[100] * count)


# ---- provenance, warnings, faults

def test_provenance_and_warnings_of_the_collective_model_are_told(tmp_path):
    model = roofline(collective=curve(tmp_path), tensor_parallel=2)

    model.predict(decode=[100] * 10)        # 1280 bytes
    model.predict(decode=[100] * 100)       # 12,800 bytes

    assert model.provenance() == {
        "efficiency": "shares", "collective": {"exact": 0, "interpolated": 1, "extrapolated": 1}}
    [warning] = model.warnings()
    assert warning.startswith("1 of 2 collectives lie outside of what was measured in ")


def test_without_a_collective_model_there_is_nothing_to_tell():
    model = roofline(tensor_parallel=2)

    assert (model.provenance(), model.warnings()) == ({"efficiency": "shares"}, [])


def test_a_time_that_cannot_be_given_is_raised_and_forgotten(tmp_path):
    model = roofline(collective=curve(tmp_path, outside="error"), tensor_parallel=2)

    for _ in range(2):
        with pytest.raises(InputErrors, match="all_reduce of 12800 bytes over 2 ranks is outside of what was measured"):
            model.predict(decode=[100] * 100)

    # 1280 bytes: 12.8 us, 4 times
    assert model.breakdown(decode=[100] * 10)["collectives"] == pytest.approx(4 * 12.8e-6)


def test_a_breakdown_that_cannot_be_given_is_raised(tmp_path):
    model = roofline(collective=curve(tmp_path, outside="error"), tensor_parallel=2)

    with pytest.raises(InputErrors, match="outside of what was measured"):
        model.breakdown(decode=[100] * 100)
