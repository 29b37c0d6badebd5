"""Each kind of fault has its exact message, and all of them come at once."""
import pytest

from simulator.config.load import load_experiment
from simulator.errors import InputErrors

FAULTS = [
    # unknown keys
    ("engine.max_num_seq = 3", "engine.max_num_seq: unknown key; did you mean max_num_seqs?"),
    ("engine.block_siz = 3", "engine.block_siz: unknown key; did you mean block_size?"),
    ("latency.host.zzz = 3", "latency.host.zzz: unknown key; valid: api_server_count, completion_us, "
                             "defaults, front_end_per_prompt_token_us, front_end_us, "
                             "iteration_us, output_token_accumulates, output_token_us, queue_base_us, "
                             "queue_per_prompt_token_us, sequence_us"),
    ("nam = 'x'", "nam: unknown key; did you mean name?"),
    ("workload.pth = 1", "workload.pth: unknown key; did you mean path?"),
    ("engine.parameters = 1", "engine.parameters: unknown key; valid: allow_long_max_model_len, async_scheduling"),
    ('"odd key" = 1', '"odd key": unknown key; valid: autoscaling, carbon, cluster, electricity, embeddings'),
    # wrong types
    ("engine.max_num_seqs = '8'", 'engine.max_num_seqs: expected an integer from 1 to 1048576, found "8"'),
    ("engine.max_num_seqs = 8.0", "engine.max_num_seqs: expected an integer from 1 to 1048576, found 8.0"),
    ("engine.max_num_seqs = true", "engine.max_num_seqs: expected an integer from 1 to 1048576, found true"),
    ("output.requests = 1", "output.requests: expected true or false, found 1"),
    ("name = 3", r"name: expected text matching ^\w[\w.+ -]{0,199}$, found 3"),
    ("seed = 2026-01-01", "seed: expected an integer from 0 to 9223372036854775807, found 2026-01-01"),
    ("slo = 3", "slo: expected a table, found 3"),
    ("seed = {a = 1}", "seed: expected an integer from 0 to 9223372036854775807, found a table"),
    ("seed = [1, 2]", "seed: expected an integer from 0 to 9223372036854775807, found [1, 2]"),
    # out of range
    ("engine.block_size = 0", "engine.block_size: expected an integer from 1 to 1048576, found 0"),
    ("engine.gpu_memory_utilization = 1.5", "engine.gpu_memory_utilization: expected a number > 0 and <= 1, found 1.5"),
    ("slo.ttft_ms = -1", "slo.ttft_ms: expected a number > 0, found -1"),
    ("horizon_s = 0", "horizon_s: expected a number > 0, found 0"),
    ("horizon_s = nan", "horizon_s: expected a number > 0, found nan"),
    ("latency.base_us = nan", "latency.base_us: expected a number from 0 to 1000000000000, found nan"),
    ("latency.base_us = inf", "latency.base_us: expected a number from 0 to 1000000000000, found inf"),
    ("name = '../up'", r'name: expected text matching ^\w[\w.+ -]{0,199}$, found "../up"'),
    (f"seed = 0x1{'0' * 20}", "seed: expected an integer from 0 to 9223372036854775807, found an integer of 81 bits"),
    (f"latency.base_us = 0x1{'0' * 300}",
     "latency.base_us: expected a number from 0 to 1000000000000, found an integer of 1201 bits"),
    ("latency.base_us = 9e14", "latency.base_us: expected a number from 0 to 1000000000000, found 900000000000000.0"),
    ("latency.host.iteration_us = 1e300",
     "latency.host.iteration_us: expected a number from 0 to 1000000000000, found 1e+300"),
    ("slo.ttft_ms = inf", "slo.ttft_ms: expected a number > 0, finite, found inf"),
    # texts
    ('name = "a\\n"', r'name: expected text matching ^\w[\w.+ -]{0,199}$, found "a\n"'),
    ("workload.path = ''", 'workload.path: expected the path of a file, found ""'),
    # lists of tables
    ("cluster.routing.scorers = [{name = 'queue-depht', weight = 0}, 3, {name = 'load-aware', weight = 1, load = 'x'}]",
     "cluster.routing.scorers[0].weight: expected a number > 0, found 0\n"
     'a.toml: cluster.routing.scorers[0].name: no scorer "queue-depht"; did you mean queue-depth?\n'
     "a.toml: cluster.routing.scorers[1]: expected a table, found 3\n"
     "a.toml: cluster.routing.scorers[2].load: unknown key; valid: name, threshold_requests, weight"),
    # names
    ("engine.policy = 'fcsf'", 'engine.policy: expected one of "fcfs", "priority", found "fcsf"; did you mean fcfs?'),
    ("engine.scheduler = 'vlm'", 'engine.scheduler: no scheduler "vlm"; did you mean vllm?'),
    ("latency.backend = 'x'", 'latency.backend: no latency backend "x"; valid: '),
    ("latency.collective.backend = 'x'", 'latency.collective.backend: no collective model "x"; valid: '),
    ("workload.type = 'x'", 'workload.type: no workload "x"; valid: clients, sessions, synthetic, trace, vidur'),
    ("cluster.routing.policy = 'round'", 'cluster.routing.policy: no router "round"; did you mean round_robin?'),
    ("cluster.admission.policy = 'never'", 'cluster.admission.policy: no admission policy "never"; valid: '),
    ("workload.format = 'azzure'", 'workload.format: no trace format "azzure"; did you mean azure?'),
    ("model.name = 'lama-3.1-8b'", 'model.name: no model "lama-3.1-8b" in models/; did you mean llama-3.1-8b?'),
    ("hardware.name = 'h100-smx-80gb'", 'hardware.name: no hardware "h100-smx-80gb" in hardware/; '
                                        'did you mean h100-sxm-80gb?'),
    ("topology.node = 'dgx-h10'", 'topology.node: no node "dgx-h10" in hardware/nodes/; did you mean dgx-h100?'),
    # lists, and tables in tables
    ("engine.speculative = {}",
     "engine.speculative.num_tokens: missing; expected an integer from 1 to 1024 (drafts per step)"),
    ("engine.speculative = {num_tokens = 3, acceptance = [1, -2, 'x']}",
     "engine.speculative.acceptance[1]: expected an integer from 0 to 1024, found -2\n"
     'a.toml: engine.speculative.acceptance[2]: expected an integer from 0 to 1024, found "x"'),
    ("engine.speculative = {num_tokens = 3, acceptance = {distribution = []}}",
     "engine.speculative.acceptance.distribution: expected a list of numbers >= 0, at least 1, found []"),
    ("engine.speculative = {num_tokens = 3, acceptance = [1, 4]}",
     "engine.speculative: acceptance: no more than num_tokens = 3 drafts can be accepted, found 4"),
    ("engine.speculative = {num_tokens = 1, acceptance = {distribution = [1, 2, 0.5]}}",
     "engine.speculative: acceptance: no more than num_tokens = 1 drafts can be accepted, found 2"),
    # several keys together
    ("engine.max_num_batched_tokens = 100\nengine.max_num_seqs = 256",
     "engine.max_num_batched_tokens: expected at least max_num_seqs = 256, found 100"),
    ("engine.enable_chunked_prefill = false\nengine.max_num_batched_tokens = 4096",
     "engine.max_num_batched_tokens: expected at least max_model_len = 8192, since enable_chunked_prefill is false, "
     "found 4096"),
    ("engine.async_scheduling = true\nengine.vllm_version = '0.10'\ntopology.pipeline_parallel = 2",
     "engine.async_scheduling: expected false with topology.pipeline_parallel = 2, found true: vLLM 0.10 refuses it "
     "with them"),
    ("topology = {data_parallel = 4, expert_parallel = 2}",
     "topology.expert_parallel: expected 1, or tensor_parallel x data_parallel = 4, found 2"),
    ("engine.data_parallel = {hop_us = 5.0}",
     "engine.data_parallel: expected none with topology.data_parallel = 1: there are no ranks"),
    ("engine.data_parallel = {padding = 'sglang'}\ntopology.data_parallel = 2",
     'engine.data_parallel.padding: expected "vllm" or "none" with latency.backend = "linear", found "sglang": it '
     "prices each rank by its own tokens"),
    ("engine.data_parallel = {lockstep = false, hop_us = 5.0}\ntopology.data_parallel = 2",
     "engine.data_parallel.hop_us: expected 0.0 with engine.data_parallel.lockstep = false, found 5.0: it concerns "
     "ranks in lock step alone"),
    ("engine.data_parallel = {load_balancing = 'hybrid'}\ntopology.data_parallel = 2",
     'engine.data_parallel.load_balancing: expected "internal" or "external" without topology.node, found "hybrid": '
     "it chooses among nodes"),
    ("model.dtype = 'fp8'", "model: give either name or config"),
    ("model = {name = 'llama-3.1-8b', config = 'c.json'}", "model: give either name or config"),
]

MINIMAL_KEYS = """
engine.max_model_len = 8192
engine.num_gpu_blocks = 1000
latency.backend = "linear"
workload.type = "trace"
workload.path = "t.csv"
"""


@pytest.mark.parametrize(("line", "message"), FAULTS, ids=[line.splitlines()[0][:60] for line, _ in FAULTS])
def test_fault_is_told_with_file_key_value_and_what_is_allowed(load, faults, line, message):
    key = line.partition(" =")[0]
    rest = "\n".join(each for each in MINIMAL_KEYS.splitlines() if not each.startswith(key + " "))
    told = "\n".join(faults(load, text=f"{line}\n{rest}"))
    assert told == f"a.toml: {message}" or (message.partition("valid: ")[1] and told.startswith(f"a.toml: {message}"))


@pytest.mark.parametrize("letter", ["\u0085", "\u2028", "\u202e"])
def test_a_letter_that_breaks_lines_or_turns_their_direction_is_escaped(load, letter):
    with pytest.raises(InputErrors) as caught:
        load(text=f'"a{letter}b" = 1\n{MINIMAL_KEYS}')
    assert str(caught.value).isprintable()
    assert letter.encode("unicode_escape").decode() in str(caught.value)


def test_all_faults_come_at_once_one_a_line(load, faults):
    text = """
        horizon_s = -1
        [model]
        name = "lama-3.1-8b"
        [engine]
        max_num_seq = 3
        [latency]
        backend = "linear"
        base_us = "x"
    """
    assert faults(load, text=text) == [
        "a.toml: horizon_s: expected a number > 0, found -1",
        'a.toml: model.name: no model "lama-3.1-8b" in models/; did you mean llama-3.1-8b?',
        "a.toml: engine.max_num_seq: unknown key; did you mean max_num_seqs?",
        'a.toml: latency.base_us: expected a number from 0 to 1000000000000, found "x"',
        'a.toml: workload.type: missing; expected "clients", "sessions", "synthetic", "trace", "vidur", '
        '"vllm_multi_turn" or "module:Class" (source of the requests)',
    ]


@pytest.mark.parametrize(("lines", "message"), [
    ('latency.backend = "roofline"\nengine.max_model_len = 10\nengine.num_gpu_blocks = 10',
     'model: missing table; it is needed by latency.backend = "roofline"\n'
     'a.toml: hardware: missing table; it is needed by latency.backend = "roofline"'),
    ('latency.backend = "linear"\nengine.max_model_len = 10',
     "model: missing table; it is needed by engine.num_gpu_blocks, which is not given\n"
     "a.toml: hardware: missing table; it is needed by engine.num_gpu_blocks, which is not given"),
    ('latency.backend = "linear"\nengine.num_gpu_blocks = 10',
     "model: missing table; it is needed by engine.max_model_len, which is not given"),
])
def test_absent_model_is_refused_with_the_key_that_needs_it(load, faults, lines, message):
    text = f'{lines}\nworkload.type = "trace"\nworkload.path = "t.csv"'
    assert "\n".join(faults(load, text=text)) == f"a.toml: {message}"


def test_what_a_struct_says_of_its_fields_together_is_told_with_its_table(load, faults):
    text = MINIMAL_KEYS.replace('"trace"', '"synthetic"').replace('workload.path = "t.csv"', """
        workload.num_requests = 3
        workload.arrival = {process = "poisson", rate_per_s = 1}
        workload.prompt_tokens = {distribution = "uniform", min = 5, max = 3}
        workload.output_tokens = {distribution = "uniform", min = 1, max = 3, tokens = 3}
    """)
    assert faults(load, text=text) == [
        "a.toml: workload.prompt_tokens: min 5 is above max 3",
        "a.toml: workload.output_tokens.tokens: unknown key; valid: distribution, max, min; "
        'length distribution "uniform" does not have it, "constant" does',
    ]


def test_a_value_of_a_free_table_is_told_with_its_key(tmp_path):
    (tmp_path / "a.toml").write_text('[workload]\ntype = "trace"\npath = "a.csv"\ncolumns = {arrived_at = 0}\n')

    with pytest.raises(InputErrors) as found:
        load_experiment(tmp_path / "a.toml")

    assert any(fault.endswith("workload.columns.arrived_at: expected text, found 0") for fault in found.value.faults)
