"""File formats of an exported deployment: `vllm`, `compose`, `llm-d`, `llm-d-router`, `dynamo`, `hpa`, `keda`.

Keys that no server has are comments in front. Sources: docker/compose specification (GPU reservations);
llm-d-incubation/llm-d-modelservice@024c0f2d, charts/llm-d-modelservice/values.yaml; ai-dynamo/dynamo@0044eb90,
examples/backends/vllm/deploy.
"""
import json
import shlex
from collections.abc import Callable
from typing import Any

from simulator.config.experiment import Experiment
from simulator.errors import InputErrors, MissingExtra
from simulator.study.deployment import dynamo_settings, router_settings
from simulator.study.deployment.endpoint_picker import endpoint_picker
from simulator.study.deployment.lowering import Lowered, Server, lower, lower_router, lower_scaling
from simulator.study.deployment.router_settings import Settings
from simulator.study.deployment.scaling_manifests import HPA, KEDA, manifests

ROUTER = "llm-d-router"         # the format of a gateway alone
POLICY_FOLDER, POLICY = "/etc/dynamo", "policy.yaml"        # of Dynamo's router
GB = 10**9
PORT = 8000
TARGET_PORT = 8200              # where vLLM listens behind llm-d's proxy
SIDE_CHANNEL_PORT = 5557        # of NIXL
SIDE_CHANNEL = [{"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(SIDE_CHANNEL_PORT)},
                {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def vllm(lowered: Lowered) -> str:
    """Return a command for each kind of server."""
    blocks = []
    for server in lowered.servers:
        command = [f"{' '.join(map(shlex.quote, server.command()[:3]))}"]
        command += [f"    {flag}" + (f" {shlex.quote(value)}" if value is not None else "")
                    for flag, value in server.arguments]
        blocks.append(f"# {_title(server)}\n" + " \\\n".join(command))
    return "\n\n".join(blocks)


def compose(lowered: Lowered) -> str:
    """Return services of Docker Compose, a server each, on one machine."""
    needed = sum(server.replicas * server.gpus for server in lowered.servers)
    there = min((server.gpus_per_node or needed for server in lowered.servers), default=needed)
    if needed > there:
        raise InputErrors([f"--as compose describes one machine: {needed} GPUs are needed, the node has {there}"])
    services, first_gpu = {}, 0
    for server in lowered.servers:
        for number in range(server.replicas):
            ids = [str(gpu) for gpu in range(first_gpu, first_gpu + server.gpus)]
            first_gpu += server.gpus
            services[f"{server.name}-{number}"] = {
                "image": f"vllm/vllm-openai:v{server.version}",
                "command": [server.model, *server.words()],
                "ports": [f"{PORT + len(services)}:{PORT}"],
                "ipc": "host",
                "environment": {"HF_TOKEN": "${HF_TOKEN}"},
                "deploy": {"resources": {"reservations": {"devices": [
                    {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}]}}},
            }
    return _yaml({"name": _label(lowered.name), "services": services})


def llm_d(lowered: Lowered) -> str:
    """Return values of llm-d's chart `modelservice`."""
    decode, prefill = _by_role(lowered, "llm-d")
    if decode.model != (prefill or decode).model:
        raise InputErrors([f"--as llm-d describes one model, found {prefill.model} and {decode.model}"])
    size_gib = -(-decode.weights_bytes * 11 // 10 // 2**30)         # a tenth for the files beside the weights
    values = {
        "modelArtifacts": {"name": decode.model, "uri": f"hf://{decode.model}", "size": f"{size_gib}Gi",
                           "authSecretName": "hf-token-secret"},
        "routing": {"servicePort": PORT, "proxy": {"enabled": lowered.connector is not None}},
        "decode": _chart_role(decode, lowered, TARGET_PORT if lowered.connector is not None else PORT),
        "prefill": _chart_role(prefill, lowered, PORT) if prefill is not None else {"create": False, "replicas": 0},
    }
    if lowered.connector is not None:
        values["routing"]["proxy"] |= {"targetPort": TARGET_PORT, "connector": "nixlv2"}
    return _yaml(values)


def dynamo(lowered: Lowered) -> str:
    """Return a DynamoGraphDeployment of Kubernetes."""
    decode, prefill = _by_role(lowered, "dynamo")
    frontend = {"componentType": "frontend", "replicas": 1,
                "extraPodSpec": {"mainContainer": {"image": _runtime(decode)}}}
    written, documents = _settings_of(lowered, "dynamo").written, []
    variables = written["envs"]
    if written["policy"] is not None:
        name = f"{_label(lowered.name)}-router-policy"
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                          "data": {POLICY: _yaml(written["policy"])}})
        variables.append({"name": "DYN_ROUTER_POLICY_CONFIG", "value": f"{POLICY_FOLDER}/{POLICY}"})
        frontend["extraPodSpec"]["mainContainer"]["volumeMounts"] = [{"name": "policy", "mountPath": POLICY_FOLDER}]
        frontend["extraPodSpec"]["volumes"] = [{"name": "policy", "configMap": {"name": name}}]
    if variables:
        frontend["envs"] = variables
    services = {"Frontend": frontend, "VllmDecodeWorker": _worker(decode, prefill is not None)}
    if prefill is not None:
        services["VllmPrefillWorker"] = _worker(prefill, True)
    if written["planner"] is not None:
        services["Planner"] = _planner(written["planner"], decode, prefill)
    graph = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment",
             "metadata": {"name": _label(lowered.name)}, "spec": {"services": services}}
    return _documents([*documents, graph])


def llm_d_router(lowered: Lowered) -> str:
    """Return the EndpointPickerConfig of llm-d's router."""
    return _yaml(_settings_of(lowered, ROUTER).written)


def hpa(lowered: Lowered) -> str:
    """Return a HorizontalPodAutoscaler for each pool."""
    return _documents(_settings_of(lowered, HPA).written)


def keda(lowered: Lowered) -> str:
    """Return a ScaledObject for each pool."""
    return _documents(_settings_of(lowered, KEDA).written)


FORMATS: dict[str, Callable[[Lowered], str]] = {
    "vllm": vllm, "compose": compose, "llm-d": llm_d, ROUTER: llm_d_router, "dynamo": dynamo, HPA: hpa, KEDA: keda}
LOWERED: dict[str, Callable[[Experiment], Lowered]] = {     # formats without servers
    ROUTER: lower_router, HPA: lower_scaling, KEDA: lower_scaling}


def lowered_for(experiment: Experiment, name: str) -> Lowered:
    """Return the part of an experiment that a format describes.

    Raises
    ------
    InputErrors
        Its servers cannot be written.
    """
    return LOWERED.get(name, lower)(experiment)


def left_out_of(lowered: Lowered, name: str) -> tuple[str, ...]:
    """Return the keys that a format does not hold, "key = value: why".

    Raises
    ------
    InputErrors
        The format cannot describe such a router.
    """
    if (settings := _settings_of(lowered, name)) is None:
        return lowered.left_out
    left_out = [line for line in lowered.left_out if line.partition(" = ")[0] not in settings.said]
    return (*left_out, *settings.changed)


def _settings_of(lowered: Lowered, name: str) -> Settings | None:
    """Return the router or the autoscaler in the words of a format; None: it holds neither."""
    if name == "dynamo":
        return _dynamo_settings(lowered)
    if name == ROUTER:
        return endpoint_picker(lowered.routing, lowered.queue, lowered.block_size)
    return manifests(lowered.autoscaling, lowered.pools, name) if name in (HPA, KEDA) else None


def _dynamo_settings(lowered: Lowered) -> Settings:
    """Return variables of the frontend, the policy file and the PlannerConfig; None: the last two are not needed."""
    routing, changed = lowered.routing, []
    queue = routing.queue if routing.policy == "dynamo" else None
    has_file = dynamo_settings.needs_file(queue)
    if has_file and (why := dynamo_settings.why_no_file(queue)):
        has_file, changed = False, [f"{router_settings.PLACE}queue: {why}"]
    front = router_settings.frontend(routing, has_file)
    said = set(front.said)
    if has_file:
        keys = ("threshold", "threshold_tokens", "busy_ratio", "order", "classes")
        said |= {f"{router_settings.PLACE}queue.{key}" for key in keys}
    written = {"envs": front.written, "policy": dynamo_settings.policy_file(queue) if has_file else None,
               "planner": None}
    if dynamo_settings.has_planner(lowered.autoscaling):
        planner = dynamo_settings.planner(lowered.autoscaling, {pool.role for pool in lowered.pools})
        written["planner"], said = planner.written, said | planner.said
        changed += planner.changed
    return Settings(written, frozenset(said), tuple(changed))


def text_of(lowered: Lowered, name: str) -> str:
    """Return the file of a format; keys that no server has are comments in front.

    Raises
    ------
    InputErrors
        The format cannot describe such a deployment; PyYAML is missing.
    """
    front = [f"# {lowered.name}: what was simulated, as {name} has it"]
    if left_out := left_out_of(lowered, name):
        front += ["# Simulated, too, and not to be told a server:", *(f"#   {line}" for line in left_out)]
    return "\n".join([*front, "", FORMATS[name](lowered)]).rstrip("\n") + "\n"


def _by_role(lowered: Lowered, name: str) -> tuple[Server, Server | None]:
    """Return the servers that decode, and those that only prefill: one kind of each at most."""
    roles = [server.role for server in lowered.servers]
    if sorted(roles) not in (["both"], ["decode", "prefill"]):
        raise InputErrors([f"--as {name} describes one pool, or one for prompts and one for decodes; "
                           f"found {', '.join(f'{server.name} ({server.role})' for server in lowered.servers)}"])
    by_role = {server.role: server for server in lowered.servers}
    return by_role.get("both") or by_role["decode"], by_role.get("prefill")


def _chart_role(server: Server, lowered: Lowered, port: int) -> dict[str, Any]:
    ways = {flag: int(value) for flag, value in server.arguments if flag.endswith("-parallel-size")}
    tensor, data = ways.get("--tensor-parallel-size", 1), ways.get("--data-parallel-size", 1)
    of_chart = ("--tensor-parallel-size", "--data-parallel-size")           # the chart adds these itself
    words = [word for flag, value in server.arguments if flag not in of_chart
             for word in (flag, value) if word is not None]
    gpus = {"nvidia.com/gpu": str(server.gpus)}
    container = {"name": "vllm", "image": f"vllm/vllm-openai:v{server.version}", "modelCommand": "vllmServe",
                 "args": words, "ports": [{"containerPort": port, "protocol": "TCP"}],
                 "resources": {"limits": gpus, "requests": gpus}, "mountModelVolume": True}
    if lowered.connector == "NixlConnector":
        container["env"] = SIDE_CHANNEL
        container["ports"].append({"containerPort": SIDE_CHANNEL_PORT, "protocol": "TCP"})
    return {"create": True, "replicas": server.replicas, "parallelism": {"tensor": tensor, "data": data},
            "containers": [container]}


def _worker(server: Server, is_split: bool) -> dict[str, Any]:
    gpus, nodes = server.gpus, 1
    if server.gpus_per_node is not None and gpus > server.gpus_per_node:
        gpus, nodes = server.gpus_per_node, -(-gpus // server.gpus_per_node)
    words = ["--model", server.model, *server.words()]
    words += [f"--is-{server.role}-worker"] if is_split else []
    worker = {"envFromSecret": "hf-token-secret", "componentType": "worker", "replicas": server.replicas,
              "resources": {"limits": {"gpu": str(gpus)}},
              "extraPodSpec": {"mainContainer": {"image": _runtime(server), "command": ["python3", "-m", "dynamo.vllm"],
                                                 "args": words}}}
    if is_split:
        worker["subComponentType"] = server.role
    if nodes > 1:
        worker["multinode"] = {"nodeCount": nodes}
    return worker


def _planner(config: dict[str, Any], decode: Server, prefill: Server | None) -> dict[str, Any]:
    config = config | {"decode_engine_num_gpu": decode.gpus}
    config |= {"prefill_engine_num_gpu": prefill.gpus} if prefill is not None else {}
    return {"componentType": "planner", "replicas": 1, "extraPodSpec": {"mainContainer": {
        "image": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:${VERSION}", "command": ["python3", "-m", "dynamo.planner"],
        "args": ["--config", json.dumps(config)]}}}


def _runtime(server: Server) -> str:
    """Return Dynamo's image; Dynamo's release notes say which version of vLLM each image holds."""
    return "nvcr.io/nvidia/ai-dynamo/vllm-runtime:${VERSION}"


def _title(server: Server) -> str:
    each = f"{server.gpus} GPU{'s' * (server.gpus > 1)}"
    role = "" if server.role == "both" else f", {server.role}"
    return f"{server.name}{role}: {server.replicas} x {each}, vLLM {server.version}"


def _label(name: str) -> str:
    """Return a name as Kubernetes and Compose take it."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")


def _documents(documents: list[dict[str, Any]]) -> str:
    return "---\n".join(map(_yaml, documents))


def _yaml(document: dict[str, Any]) -> str:
    try:
        import yaml
    except ImportError:
        raise MissingExtra(["YAML is written by PyYAML: install it with pip install 'simulator[deploy]'"]) from None
    return yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False, width=120)     # copies: no anchors
