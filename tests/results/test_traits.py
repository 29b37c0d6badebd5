"""What only some workloads say of their requests, in tables and metrics."""
import numpy as np
import pytest

import simulator
from results.fakes import MS, small_run
from simulator.domain import records
from simulator.results.load import load_results
from simulator.results.traits import metrics_of, traits_of
from support.every_key import read

TRACE = ("arrived_at,num_prefill_tokens,num_decode_tokens,reasoning_tokens,num_images,image_tokens\n"
         "0,1,6,2,1,1\n0.0105,3,4,0,0,0\n0.02,5,3,3,,\n0.03,5,3,,,\n0.04,5,1,0,,\n")
COLUMNS = ("reasoning_tokens", "first_answer_ns", "num_images", "image_tokens")


@pytest.fixture
def experiment(tmp_path):
    """Return an experiment of iterations of 1 ms."""
    (tmp_path / "trace.csv").write_text(TRACE)

    def experiment(**settings):
        data = {"engine": {"num_gpu_blocks": 100, "max_model_len": 100},
                "latency": {"backend": "linear", "base_us": 1000.0, "per_sequence_us": 0.0,
                            "per_prefill_token_us": 0.0, "per_context_token_us": 0.0},
                "workload": {"type": "trace", "path": str(tmp_path / "trace.csv")}}
        for table, keys in settings.items():
            data[table] = data.get(table, {}) | keys
        return read(data)
    return experiment


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("token_times", [True, False])
def test_the_answer_begins_behind_the_reasoning(tmp_path, experiment, fast_forward, token_times):
    # the third token of the first comes at 3 ms, the first of the second at 11.5; the third never answers; of the
    # fourth nothing is known; the fifth answers at once
    result = simulator.run(experiment(engine={"fast_forward": fast_forward}, output={"token_times": token_times}))

    assert result.requests["first_answer_ns"].tolist() == [3 * MS, 11.5 * MS, -1, -1, 41 * MS]
    assert result.requests["reasoning_tokens"].tolist() == [2, 0, 3, -1, 0]
    assert result.requests["image_tokens"].tolist() == [1, 0, -1, -1, -1]
    assert result.summary["ttfat_ms"]["mean"] == (3 + 1 + 1) / 3
    assert "TTFAT" in simulator.results.summary_table(result.summary)


def test_files_hold_the_same(tmp_path, experiment):
    made = simulator.run(experiment())
    written = simulator.run(experiment(), out=tmp_path / "out")

    assert load_results(tmp_path / "out").requests.tobytes() == written.requests.tobytes() == made.requests.tobytes()
    assert written.summary == made.summary
    assert set(COLUMNS) <= set(written.to_pandas().columns)
    with pytest.raises(LookupError, match="token_times was false"):
        _ = written.token_times


def test_a_request_that_starts_over_answers_behind_its_last_reasoning(experiment, tmp_path):
    # 4 blocks of 4 tokens: both requests take one for the prompt and one from the first output on; the fifth needs a
    # third: the last admitted starts over, twice, and runs alone when the other is done
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,reasoning_tokens\n"
                                        "0,4,8,2\n0,4,8,2\n")
    result = simulator.run(experiment(output={"token_times": True}, engine={
        "scheduler": "blis", "num_gpu_blocks": 5, "block_size": 4, "max_model_len": 16}))

    assert result.requests["preemptions"].tolist() == [0, 2]
    offsets, times_ns = result.token_times
    assert offsets[2] - offsets[1] > 8
    assert result.requests["first_answer_ns"].tolist() == [times_ns[offsets[1] - 6], times_ns[offsets[2] - 6]]
    assert result.requests["first_answer_ns"][1] > result.requests["completed_ns"][0]


def test_of_plain_workloads_there_is_nothing_to_tell():
    run = small_run()

    assert traits_of(run) == {}
    assert metrics_of(run) == {}


def test_a_request_is_in_time_at_its_very_deadline():
    run = small_run()
    completed = np.flatnonzero(run.workload.requests["status"] == records.COMPLETED)
    run.workload.demands["due_ns"][completed] = run.workload.requests["completed_ns"][completed]

    assert metrics_of(run) == {"deadlines": {"given": len(completed), "missed": 0}}
    run.workload.demands["due_ns"][completed] -= 1
    assert metrics_of(run)["deadlines"]["missed"] == len(completed)
