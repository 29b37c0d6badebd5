"""What a server's page of metrics says."""
from simulator.study.server_metrics.text_format import flags_in, samples_of

PAGE = """# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b} c"} 3.0
vllm:request_queue_time_seconds_bucket{le="+Inf"} 7 1700000000000
process_start_time_seconds 1.5e+09
broken line that is no sample at all
vllm:cache_config_info{block_size="16",cache_dtype="auto",note="say \\"hi\\""} 1.0
vllm:nothing NaN
vllm:most +Inf
"""


def test_samples_are_read_with_their_labels():
    samples = samples_of(PAGE)

    assert samples['vllm:num_requests_running{engine="0",model_name="a b} c"}'] == 3.0
    assert samples['vllm:request_queue_time_seconds_bucket{le="+Inf"}'] == 7.0
    assert samples["process_start_time_seconds"] == 1.5e9
    assert (samples["vllm:most"], samples["vllm:nothing"]) == ("inf", "nan")       # JSON has neither
    assert len(samples) == 6


def test_flags_are_the_labels_of_information():
    assert flags_in(samples_of(PAGE)) == {"block_size": "16", "cache_dtype": "auto", "note": 'say \\"hi\\"'}
    assert flags_in("not told: status 404") == {}
