"""What policies may know of output lengths."""
import numpy as np
import pytest

from simulator.domain.traits import OutputKnowledge
from simulator.errors import InputErrors
from simulator.workload.columns import Columns
from simulator.workload.limits import MISSING
from simulator.workload.output_knowledge import with_knowledge

BUCKETS = (64, 256, 1024)


def requests(outputs, **columns):
    """Return requests with these output lengths, one millisecond apart."""
    outputs = np.array(outputs, np.int64)
    columns = {name: np.array(values, np.int64) if isinstance(values, list) and name == "max_tokens" else values
               for name, values in columns.items()}
    return Columns(np.arange(len(outputs)) * 1_000_000, np.full(len(outputs), 10), outputs, **columns)


def expected(columns, predictor, seed=0, **keys):
    return with_knowledge(columns, OutputKnowledge(predictor=predictor, **keys), seed).expected_tokens.tolist()


def test_k1_a_length_is_known_by_the_upper_edge_of_its_bucket():
    # 64 is in the first bucket, 65 in the second; 2000 is beyond the last edge, as long as declared.
    columns = requests([64, 65, 2000], max_tokens=[4096, 4096, 4096])

    assert expected(columns, "bucket", buckets=BUCKETS) == [64, 256, 4096]


def test_k2_without_error_a_length_is_known_exactly():
    assert expected(requests([1, 64, 777]), "lognormal_error", error_sigma=0.0) == [1, 64, 777]


def test_by_default_nothing_is_known():
    assert with_knowledge(requests([5]), OutputKnowledge(), 0).expected_tokens is None


@pytest.mark.parametrize(("predictor", "lengths"), [
    ("exact", [1, 7, 40]),              # an output of 0 tokens is one sampled token; the second ends at its max_tokens
    ("declared", [8, 7, 100])])
def test_what_stops_an_output_is_what_is_known(predictor, lengths):
    assert expected(requests([0, 50, 40], max_tokens=[8, 7, 100]), predictor) == lengths


def test_a_length_is_taken_for_what_nobody_declared_and_that_is_told():
    columns = with_knowledge(requests([5, 6], max_tokens=[MISSING, 9]), OutputKnowledge(predictor="declared"), 0)

    assert columns.expected_tokens.tolist() == [5, 9]
    assert columns.notes == ("1 of 2 requests declare no max_tokens: policies, which expect what is declared, expect "
                             "their true output length",)


def test_the_mean_is_that_of_the_class():
    # class 0: (10 + 21) / 2 = 15.5, rounds up; class 1: 7; without one: (1 + 2) / 2 = 1.5
    labels = {"slo_class": (np.array([0, 1, 0, -1, -1]), ["a", "b"])}

    assert expected(requests([10, 7, 21, 1, 2], labels=labels), "mean") == [16, 7, 16, 2, 2]


def test_the_column_of_the_trace_is_read():
    columns = requests([10, 7], facts={"predicted_tokens": np.array([12, MISSING])})

    assert expected(columns, "column") == [12, -1]


def test_a_missing_column_is_refused():
    with pytest.raises(InputErrors, match=r'workload\.output_knowledge\.predictor: "column" reads the column'):
        expected(requests([1]), "column")


@pytest.mark.parametrize("bias", [1.0, 2.0])
def test_errors_are_unbiased_and_as_large_as_asked(bias):
    # ln(prediction / (bias x true)) is normal with mean -sigma**2 / 2 and deviation sigma; of 20,000 draws the mean is
    # within 4 x 0.5 / sqrt(20,000) = 0.014, the mean ratio within 4 x sqrt(e**0.25 - 1) / sqrt(20,000) = 0.015
    ratios = np.array(expected(requests([10**6] * 20_000), "lognormal_error", error_sigma=0.5, bias=bias)) / 1e6 / bias

    assert abs(ratios.mean() - 1) < 0.015
    assert abs(np.log(ratios).mean() + 0.125) < 0.014
    assert abs(np.log(ratios).std() - 0.5) < 0.01


def test_a_share_of_requests_is_put_into_a_neighbouring_bucket():
    # 10 has only one neighbour, as has what is declared; 100 has two, each with half of the share
    found = np.array(expected(requests([10, 100, 5000] * 10_000, max_tokens=[8000] * 30_000), "bucket",
                              buckets=BUCKETS, wrong_bucket_share=0.2)).reshape(-1, 3)

    # 4 deviations of 10,000 draws: 0.016 and 0.012
    assert set(found[:, 0]) == {64, 256}
    assert abs((found[:, 0] == 256).mean() - 0.2) < 0.016
    assert set(found[:, 1]) == {64, 256, 1024}
    assert abs((found[:, 1] == 64).mean() - 0.1) < 0.012
    assert abs((found[:, 1] == 1024).mean() - 0.1) < 0.012
    assert set(found[:, 2]) == {1024, 8000}


@pytest.mark.parametrize("ids", [None, [f"r{i}" for i in range(50)]])
def test_what_is_known_of_a_request_depends_on_its_id_alone(ids):
    all_requests = requests(range(100, 150), request_ids=ids)
    every_third = [f"r{i}" for i in range(0, 50, 3)] if ids else np.arange(0, 50, 3)
    some = requests(range(100, 150, 3), request_ids=every_third)

    assert expected(some, "lognormal_error") == expected(all_requests, "lognormal_error")[::3]
    assert expected(some, "lognormal_error") != expected(some, "lognormal_error", seed=1)


@pytest.mark.parametrize(("keys", "message"), [
    ({"predictor": "exact", "bias": 2.0}, 'predictor = "exact" does not read bias'),
    ({"predictor": "bucket", "buckets": (5, 5)}, "expected ascending upper edges, found"),
    ({"predictor": "bucket", "buckets": ()}, "expected ascending upper edges, found")])
def test_keys_that_say_nothing_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        OutputKnowledge(**keys)
