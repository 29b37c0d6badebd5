"""[cluster.programs] in experiment files: turns of agents pass a policy before the router."""
from collections import Counter

import numpy as np
import pytest

import simulator
from simulator.admission.programs.thunderagent import ThunderAgent, ThunderAgentParameters
from simulator.domain import records
from simulator.errors import BadAnswer, InputErrors

BASE = """
seed = 3
[topology]
replicas = 2
[engine]
num_gpu_blocks = 400
max_model_len = 8192
max_num_seqs = 16
policy = "priority"
[latency]
backend = "linear"
per_prefill_token_us = 100.0
[workload]
type = "sessions"
num_sessions = 16
[workload.arrival]
process = "poisson"
rate_per_s = 2.0
[workload.sessions]
rounds = {distribution = "uniform", min = 2, max = 5}
new_tokens = {distribution = "uniform", min = 100, max = 900}
output_tokens = {distribution = "uniform", min = 10, max = 120}
think_time_s = {distribution = "exponential", mean = 3.0}
"""
PROGRAMS = '[cluster.programs]\npolicy = "thunderagent"\nscheduler_interval_s = 1.0\n'


def run(tmp_path, more=PROGRAMS, **overrides):
    path = tmp_path / "agents.toml"
    path.write_text(BASE + more)
    return simulator.run(path, overrides={key.replace("__", "."): value for key, value in overrides.items()})


def rows_of(result):
    return {name: np.asarray(result.requests[name]) for name in result.requests.dtype.names}


def test_turns_wait_and_all_are_served_in_order(tmp_path):
    result = run(tmp_path)
    programs, rows = result.summary["programs"], rows_of(result)
    assert programs["completed"] == programs["programs"] == 16
    assert min(programs["pauses"], programs["demotions"], programs["stalled_turns"]) > 3
    assert programs["pauses"] >= programs["resumes"]
    waited_ns = rows["dispatched_ns"] - rows["admitted_ns"]
    assert (waited_ns == rows["program_wait_ns"]).all() and (waited_ns > 0).sum() == programs["stalled_turns"]
    assert programs["stalled_ms"]["mean"] == pytest.approx(waited_ns.sum() / 16e6)
    for session in range(16):
        own = np.flatnonzero(rows["session"] == session)
        order = own[np.argsort(rows["arrival_ns"][own])]
        gaps_ns = rows["arrival_ns"][order[1:]] - rows["completed_ns"][order[:-1]]
        assert (gaps_ns >= 0).all() and (rows["program_held_ns"][order[:-1]] <= gaps_ns).all()
        assert rows["program_held_ns"][order[-1]] == 0


def test_a_program_stays_at_its_replica_until_it_is_paused(tmp_path):
    rows = rows_of(run(tmp_path, cluster__programs__pause_threshold=1.0, engine__num_gpu_blocks=4000))
    assert not rows["program_wait_ns"].any()
    for session in range(16):
        assert len(np.unique(rows["replica"][rows["session"] == session])) == 1


def test_none_measures_and_changes_nothing(tmp_path):
    plain, measured = (rows_of(run(tmp_path, more)) for more in ("", '[cluster.programs]\npolicy = "none"\n'))
    assert all((plain[name] == measured[name]).all() for name in plain)
    rows = measured
    for session in range(16):
        own = np.flatnonzero(rows["session"] == session)
        order = own[np.argsort(rows["arrival_ns"][own])]
        assert (rows["program_held_ns"][order[:-1]]
                == rows["arrival_ns"][order[1:]] - rows["completed_ns"][order[:-1]]).all()


@pytest.mark.parametrize("more", [{}, {"topology.data_parallel": 2}, {"engine.async_scheduling": True},
                                  {"topology.pipeline_parallel": 2}])
def test_fast_forward_changes_nothing(tmp_path, more):
    more = {key.replace(".", "__"): value for key, value in more.items()}
    one, two = (run(tmp_path, engine__fast_forward=fast, **more) for fast in (True, False))
    assert (one.requests[:] == two.requests[:]).all()
    assert one.summary["programs"] == two.summary["programs"] and one.summary["programs"]["pauses"] > 0


def test_priorities_of_demoted_and_resumed_programs_act_at_the_engine_alone(tmp_path):
    tight = {"engine__max_num_seqs": 1, "workload__arrival__rate_per_s": 20.0, "topology__replicas": 1,
             "cluster__programs__soft_demote_threshold": 0.5}
    jumps, none = run(tmp_path, **tight), run(tmp_path, **tight, cluster__programs__soft_demote_priority_jump=0,
                                              cluster__programs__resume_priority_boost=0)
    assert set(np.unique(jumps.requests["program_priority_jump"])) == {-2, 0, 1}
    assert not none.requests["program_priority_jump"].any() and not jumps.requests["priority"].any()
    assert (jumps.requests["completed_ns"] != none.requests["completed_ns"]).any()
    assert not [each for each in jumps.summary["diagnosis"] if "keep their priority" in each]
    first_come = run(tmp_path, **tight, engine__policy="fcfs")
    assert [each for each in first_come.summary["diagnosis"] if "of demoted or resumed programs keep" in each]
    assert not first_come.requests["program_priority_jump"].any()


def test_a_turn_that_never_fits_goes_after_the_time_out_alone(tmp_path):
    result = run(tmp_path, cluster__programs__resume_timeout_s=700.0, cluster__programs__pause_threshold=0.01,
                 cluster__programs__pause_target=0.01, cluster__programs__resume_hysteresis=0.005,
                 workload__num_sessions=2, cluster__programs__soft_demote_threshold=0.0)
    programs, wait_ns = result.summary["programs"], np.asarray(result.requests["program_wait_ns"])
    assert result.summary["complete"] and programs["completed"] == 2
    assert programs["forced_resumes"] == (wait_ns == 700 * 10**9).sum() > 0


def trace(tmp_path, rows, more=PROGRAMS, **overrides):
    (tmp_path / "agents.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,session,deadline_s\n" + rows)
    at = BASE.index("[workload]")
    path = tmp_path / "trace.toml"
    path.write_text(f'{BASE[:at]}[workload]\ntype = "trace"\npath = "agents.csv"\n{more}')
    return simulator.run(path, overrides={key.replace("__", "."): value for key, value in overrides.items()})


def test_a_client_that_gives_up_leaves_its_program_as_it_was(tmp_path):
    rows = "0,5000,10,a,\n0,5000,10,b,\n1,4000,10,c,2\n9,100,10,c,\n40,5000,10,a,\n40,5000,10,b,\n"
    result = trace(tmp_path, rows)                              # each replica holds 6,384 tokens
    status = np.asarray(result.requests["status"]).tolist()
    assert status == [records.COMPLETED] * 2 + [records.TIMED_OUT] + [records.COMPLETED] * 3
    assert result.requests["program_wait_ns"].tolist() == [0, 0, 2 * 10**9, 0, 0, 0]
    assert result.summary["programs"]["programs"] == 3 and result.summary["programs"]["completed"] == 2


def test_requests_without_a_session_pass_and_turns_may_overlap(tmp_path):
    rows = "0,3000,300,a,\n0,3000,10,,\n1,1500,10,a,\n1,6000,10,b,\n1,6000,10,,\n2.1,5000,10,c,\n30,10,1,a,\n5,1,1,b,\n"
    result = trace(tmp_path, rows)
    replicas, wait_ns = np.asarray(result.requests["replica"]), np.asarray(result.requests["program_wait_ns"])
    assert (np.asarray(result.requests["status"]) == records.COMPLETED).all()
    assert [each for each in result.summary["diagnosis"] if "1 turns came while another turn" in each]
    assert replicas[0] == replicas[2] and not wait_ns[[0, 1, 2, 4]].any() and wait_ns[5] > 0


def test_turns_of_a_replica_that_fails_are_placed_again(tmp_path):
    fails = '[[failures]]\nkind = "stop"\nwhich = 0\nat_s = 3.0\nduration_s = 20.0\n'
    one, two = (run(tmp_path, PROGRAMS + fails, engine__fast_forward=fast, workload__arrival__rate_per_s=5.0)
                for fast in (True, False))
    rows = rows_of(one)
    assert (rows["status"] == records.COMPLETED).all() and one.summary["retries"] > 0
    assert (one.requests[:] == two.requests[:]).all()
    early, late = (rows["completed_ns"] < 3e9), (rows["dispatched_ns"] > 4e9) & (rows["dispatched_ns"] < 23e9)
    moved = set(rows["session"][early & (rows["replica"] == 0)]) & set(rows["session"][late])
    assert moved and (rows["replica"][late] == 1).all()


@pytest.mark.parametrize(("more", "message"), [
    ('policy = "thunderagents"', "did you mean thunderagent"),
    ('policy = "none"\npause_target = 0.5', "cluster.programs.pause_target"),
    ('pause_target = 0.96', "expected at most pause_threshold"),
])
def test_wrong_keys_are_refused(tmp_path, more, message):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, f"[cluster.programs]\n{more}\n")


def test_requests_without_any_session_are_refused(tmp_path):
    with pytest.raises(InputErrors, match=r"cluster\.programs: expected requests with a session"):
        trace(tmp_path, "0,100,10,,\n")


def test_capacity_counts_tiers_as_far_as_the_experiment_says(tmp_path):
    tiers = ('[kv_tiers]\nprotocol = "vllm_offload"\ncpu_gib = 1.0\nd2h_gb_per_s = 5.0\nh2d_gb_per_s = 5.0\n'
             "kv_bytes_per_token = 1e5\n")
    without, told = (run(tmp_path, PROGRAMS + tiers, cluster__programs__offload_tokens=tokens).summary
                     for tokens in (0, 10_000))
    assert [each for each in without["diagnosis"] if "[kv_tiers] do not count" in each]
    assert not [each for each in told["diagnosis"] if "[kv_tiers] do not count" in each]
    assert without["programs"]["pauses"] > 0 == told["programs"]["pauses"]


def replayed(rows, parameters, capacity):
    """Return (wait, replica) of each turn, by the policy alone, from the instants at which turns came and ended.

    rows : of turns with an output of one token, so that no turn has outputs while it runs.
    """
    policy, waits_ns, replicas = ThunderAgent(parameters), [0] * len(rows["session"]), [None] * len(rows["session"])
    policy.set_capacities(dict.fromkeys(range(2), capacity))
    left, turn = Counter(rows["session"].tolist()), {}
    events = [(int(at_ns), kind, row) for kind, name in ((0, "arrival_ns"), (1, "completed_ns"))
              for row, at_ns in enumerate(rows[name])]
    last_ns = max(events)[0]
    events += [(at_ns, 2, -1) for at_ns in range(policy.interval_ns, last_ns, policy.interval_ns)]
    for now_ns, kind, row in sorted(events):
        session = int(rows["session"][row])
        gone = []
        if kind == 0:
            turn[session] = row
            gone = [go for go in [policy.begin(session, int(rows["prompt_tokens"][row]), now_ns)] if go]
        elif kind == 1:
            policy.end_turn(session, int(rows["prompt_tokens"][row]) + 1, now_ns)
            left[session] -= 1
            if not left[session]:
                policy.end_program(session)
        else:
            gone = policy.tick(now_ns)
        for go in gone:
            waits_ns[turn[go.program]] = now_ns - int(rows["arrival_ns"][turn[go.program]])
            replicas[turn[go.program]] = go.replica
    return waits_ns, replicas


def test_turns_wait_and_go_as_the_policy_alone_says(tmp_path):
    result = run(tmp_path, workload__sessions__output_tokens__min=1, workload__num_sessions=60,
                 workload__sessions__output_tokens__max=1, cluster__programs__acting_token_weight=0.7)
    rows = rows_of(result)
    waits_ns, replicas = replayed(rows, ThunderAgentParameters(scheduler_interval_s=1.0, acting_token_weight=0.7),
                                  399 * 16)
    assert waits_ns == rows["program_wait_ns"].tolist() and replicas == rows["replica"].tolist()
    assert result.summary["programs"]["pauses"] > 10 and result.summary["programs"]["stalled_turns"] > 10


def test_each_model_has_programs_of_its_own(tmp_path):
    (tmp_path / "agents.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens,session,model\n" + "".join(
            f"{0.1 * i},{2300 + 10 * i},20,s{i % 6},m{i % 6 % 2}\n" for i in range(36)))
    path = tmp_path / "models.toml"
    pools = "".join(f'[[pools]]\nname = "p{i}"\nserves = "m{i}"\nreplicas = 1\n' for i in range(2))
    path.write_text(BASE[:BASE.index("[workload]")].replace("[topology]\nreplicas = 2\n", "")
                    + f'[workload]\ntype = "trace"\npath = "agents.csv"\n{pools}{PROGRAMS}')
    one, two = (simulator.run(path, overrides={"engine.fast_forward": fast}) for fast in (True, False))
    rows = rows_of(one)
    assert (rows["status"] == records.COMPLETED).all() and (rows["replica"] == rows["model"]).all()
    assert (one.requests[:] == two.requests[:]).all() and one.summary["programs"]["completed"] == 6
    assert {0, 1} == set(rows["model"][rows["program_wait_ns"] > 0])


def test_a_policy_of_a_user_sends_turns_and_is_named_if_its_answer_is_wrong(tmp_path):
    (tmp_path / "my_agents.py").write_text("""
from simulator.admission.programs.base import Go, ProgramPolicy


class Last(ProgramPolicy):
    replica = 1

    def begin(self, program, prompt_tokens, now_ns, is_again=False):
        return Go(program, self.replica)


class Beyond(Last):
    replica = 2
""")
    own = '[cluster.programs]\npolicy = "my_agents:%s"\n'
    assert set(run(tmp_path, own % "Last").requests["replica"]) == {1}
    with pytest.raises(BadAnswer, match=r"Beyond\.begin: expected a replica of 0 to 1, or None, found 2"):
        run(tmp_path, own % "Beyond")
