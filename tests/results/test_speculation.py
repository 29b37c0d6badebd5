"""What the summary says of drafts."""
from simulator.domain.run import Run
from simulator.results.speculation import metrics_of


def run_with(speculation):
    return Run(workload=None, complete=True, clock_ns=0, replicas=None, itl_ns=None,
               counts={} if speculation is None else {"speculation": speculation})


def test_statistics_by_hand():
    # Of ten steps four accept nothing, three the first draft, two two of them, one all three; one step had only two
    # drafts. So 6, 3 and 1 accept the first, the second and the third: 10 of 29, 1 + 10 / 10 tokens a step.
    told = metrics_of(run_with({"num_draft_tokens": 29, "steps": [4, 3, 2, 1]}))["speculation"]
    assert told == {
        "num_drafts": 10, "num_draft_tokens": 29, "num_accepted_tokens": 10, "acceptance_rate": 10 / 29,
        "mean_acceptance_length": 2.0, "num_accepted_tokens_per_pos": [6, 3, 1],
        "per_position_acceptance_rates": [0.6, 0.3, 0.1]}


def test_nobody_drafts():
    assert metrics_of(run_with(None)) == {}


def test_drafts_that_never_came_have_no_rates():
    told = metrics_of(run_with({"num_draft_tokens": 0, "steps": [0, 0]}))["speculation"]
    assert (told["num_drafts"], told["num_accepted_tokens_per_pos"]) == (0, [0])
    assert told["acceptance_rate"] is told["mean_acceptance_length"] is None
    assert told["per_position_acceptance_rates"] == [None]
