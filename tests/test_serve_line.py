"""Server commands as people paste them, and the words that plan gets from them."""

import json
import shlex
from importlib import resources

import pytest

from experiments.planning.serve_line import human_int, read_serve_line
from experiments.planning.vllm_flags import PLAN_SWITCHES, PLAN_VALUES, SPECULATIVE, known_flags
from workloads.request import InputError

SECRET = "sk-this-is-a-key"


def read(text):
    """The command as one quoted word."""
    return read_serve_line([text])


def arguments(text):
    """The same arguments from one quoted word and from words that the shell has split."""
    whole, split = read(text), read_serve_line(shlex.split(text))
    assert whole == split
    return whole.arguments


@pytest.mark.parametrize("launcher", [
    "vllm serve",
    "$ vllm serve",
    "sudo /opt/venv/bin/vllm serve",
    "CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 vllm serve",
    "uv run --with vllm vllm serve",
    "uvx vllm@0.10.2 serve",
    "nohup env X=1 vllm serve",
    "cd /srv && exec vllm serve",
    "python -m vllm.entrypoints.openai.api_server --model",
    "python3 -u -m vllm.entrypoints.api_server --model",
    "python vllm/entrypoints/openai/api_server.py --model",
    "docker run --gpus all -v ~/.cache/vllm:/root/.cache/vllm --name vllm -p 8000:8000 vllm/vllm-openai:v0.11.0 --model",
    "docker run --rm vllm/vllm-openai",
    "podman run nvcr.io/nvidia/vllm:25.09-py3 vllm serve",
    "docker run --entrypoint vllm vllm/vllm-openai:latest serve",
    "docker run -it registry.local:5000/team/vllm-openai@sha256:0a1b --model",
    "singularity run --nv docker://vllm/vllm-openai:v0.9.1 --model",
])
def test_launchers(launcher):
    assert arguments(f"{launcher} Qwen/Qwen3-8B -tp 2") == ["--model=Qwen/Qwen3-8B", "--tensor-parallel-size=2"]


@pytest.mark.parametrize(("launcher", "version"), [
    ("docker run vllm/vllm-openai:v0.11.0", "0.11.0"),
    ("docker run vllm/vllm-openai:v0.10.1.1-x86_64", "0.10.1"),
    ("docker run rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4", "0.6.4"),
    ("docker run nvcr.io/nvidia/vllm:25.09-py3 vllm serve", None),      # the year and month, not vLLM's version
    ("docker run vllm/vllm-openai:latest", None),
    ("uv run --with vllm==0.9.1 vllm serve", "0.9.1"),
    ("uvx vllm@0.10.2 serve", "0.10.2"),
    ("vllm serve", None),
])
def test_version_hint(launcher, version):
    assert read(f"{launcher} --model X --revision vllm-9.9.9").version_hint == version


def test_all_that_plan_takes_over():
    text = """vllm serve M --dtype half --quantization fp8 --kv-cache-dtype fp8_e4m3 --block-size 32 --max-model-len 16K
        --gpu-memory-utilization 0.95 -tp 8 -pp 2 -dcp 4 -dp 3 -ep --max-num-seqs 128 --max-num-batched-tokens 8k
        --no-enable-prefix-caching --enable-chunked-prefill --async-scheduling --cpu-offload-gb 4
        --num-gpu-blocks-override 500 --disable-hybrid-kv-cache-manager --enforce-eager --mamba-cache-mode align
        --mamba-ssm-cache-dtype float32"""
    assert arguments(text) == [
        "--model=M", "--dtype=float16", "--quantization=fp8", "--kv-cache-dtype=fp8_e4m3", "--block-size=32",
        "--max-model-len=16384", "--gpu-memory-utilization=0.95", "--tensor-parallel-size=8", "--pipeline-parallel-size=2",
        "--decode-context-parallel-size=4", "--data-parallel-size=3", "--enable-expert-parallel", "--max-num-seqs=128",
        "--max-num-batched-tokens=8000", "--no-enable-prefix-caching", "--enable-chunked-prefill", "--async-scheduling",
        "--cpu-offload-gb=4", "--num-gpu-blocks-override=500", "--disable-hybrid-kv-cache-manager", "--enforce-eager",
        "--mamba-cache-mode=align", "--mamba-ssm-cache-dtype=float32"]
    assert read(text).ignored == [] and read(text).unmodelled == {}


@pytest.mark.parametrize(("option", "argument"), [
    ("--max_model_len 8192", "--max-model-len=8192"),
    ("--max-model-len=25.6k", "--max-model-len=25600"),
    ("--max_model_len=1M", "--max-model-len=1048576"),
    ("--max-model-len auto", "--max-model-len=auto"),
    ("--max-model-len -1", "--max-model-len=auto"),
    ("–max-model-len 8192", "--max-model-len=8192"),               # a dash that a web page has made longer
    ("-q awq", "--quantization=awq"),
    ("-tp=4", "--tensor-parallel-size=4"),
    ("--tensor-parallel 4", "--tensor-parallel-size=4"),           # argparse takes a unique beginning
    ("-tp 2 --tensor-parallel-size 4", "--tensor-parallel-size=4"),
    ("--device-memory-utilization 0.8", "--gpu-memory-utilization=0.8"),
    ("--kv-cache-memory-bytes 10G", "--available-kv-gib=10.0"),
    ("--kv-cache-memory-bytes 10GiB", "--available-kv-gib=10.0"),
    ("--kv-cache-memory-bytes 1610612736", "--available-kv-gib=1.5"),
    ("--disable-prefix-caching", "--no-enable-prefix-caching"),
    ("--enable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"),
    ("--no-disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"),
    ("--no-async-scheduling", "--no-async-scheduling"),
    ("--enable-chunked-prefill=False", "--no-enable-chunked-prefill"),         # as older releases took it
    ("--enable-chunked-prefill true", "--enable-chunked-prefill"),
    ("--enable-prefix-caching --no-enable-prefix-caching", "--no-enable-prefix-caching"),
])
def test_spellings(option, argument):
    assert arguments(f"vllm serve {option} --model M") == [argument, "--model=M"]


@pytest.mark.parametrize("text", ["10g", "10G", "10GB", "10GiB", "9.7g", "23622320128", "9007199254740991"])
def test_kv_bytes_survive_the_way_through_gib(text):
    (_, word) = arguments(f"vllm serve M --kv-cache-memory-bytes {text}")
    assert float(word.partition("=")[2]) * 2**30 == human_int(text)


@pytest.mark.parametrize(("text", "value"), [
    ("16k", 16_000), ("16K", 16_384), ("1m", 10**6), ("1M", 2**20), ("2g", 2 * 10**9), ("2G", 2**31), ("1T", 2**40),
    ("8192", 8192), ("25.6k", 25_600), ("10GB", 10**10), ("10GiB", 10 * 2**30)])
def test_human_int(text, value):
    assert human_int(text) == value


@pytest.mark.parametrize("text", ["1.5K", "16 k", "k", "", "1e3", "16kk", "auto", "1.5"])
def test_human_int_refuses(text):
    with pytest.raises(ValueError, match="invalid literal"):
        human_int(text)


@pytest.mark.parametrize(("options", "words"), [
    ("""--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'""",
     ["--num-speculative-tokens=3", "--mtp-layers=1"]),
    ("""-sc '{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}'""", ["--num-speculative-tokens=2", "--mtp-layers=1"]),
    ("--speculative-config.method deepseek_mtp --speculative_config.num_speculative_tokens=1",
     ["--num-speculative-tokens=1", "--mtp-layers=1"]),
    ("--spec-method mtp --spec-tokens 2", ["--num-speculative-tokens=2", "--mtp-layers=1"]),
    ("--num-speculative-tokens 1", ["--num-speculative-tokens=1", "--mtp-layers=1"]),
    ("--spec-method mtp", ["--mtp-layers=1"]),
    ("""--speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'""", ["--num-speculative-tokens=5"]),
    ("--speculative-model [ngram] --num-speculative-tokens 5 --ngram-prompt-lookup-max 4", ["--num-speculative-tokens=5"]),
    ("--speculative-config {}", []),
])
def test_speculation_without_a_draft_model(options, words):
    assert arguments(f"vllm serve M {options}") == ["--model=M", *words]
    assert read(f"vllm serve M {options}").unmodelled == {}


@pytest.mark.parametrize("options", [
    """--speculative-config '{"method": "eagle3", "model": "org/eagle", "num_speculative_tokens": 3}'""",
    "--speculative-model org/small --num-speculative-tokens 3"])
def test_a_draft_model_is_not_modelled(options):
    line = read(f"vllm serve M {options}")
    assert line.arguments == ["--model=M", "--num-speculative-tokens=3"]
    assert line.unmodelled == {"--speculative-config": "a draft model's weights and KV cache"}


def test_ignored_and_unmodelled_are_named_without_their_values():
    line = read(f"vllm serve M --port 8000 --api-key {SECRET} --served-model-name a b --trust-remote-code --swap-space 4 -O3 "
                f"-O 2 --disable-log-requests --hf-token={SECRET} --no-enable-lora --use-v2-block-manager --seed -1 "
                f"--api_key {SECRET} --enable-lora --lora-modules a=b "
                "--kv-transfer-config '{\"kv_connector\": \"X\"}' "
                "--limit-mm-per-prompt.image 2 --compilation-config.cudagraph_mode=NONE")
    assert line.arguments == ["--model=M"]
    assert line.ignored == [
        "--port", "--api-key", "--served-model-name", "--trust-remote-code", "--swap-space", "--optimization-level",
        "--disable-log-requests", "--hf-token", "--no-enable-lora", "--use-v2-block-manager", "--seed", "--lora-modules"]
    assert line.unmodelled == {
        "--enable-lora": "LoRA adapters and their buffers", "--kv-transfer-config": "KV cache kept or sent outside the GPU",
        "--limit-mm-per-prompt": "the encoder of images, video and audio",
        "--compilation-config": "which CUDA graphs are captured"}
    assert SECRET not in repr(line)


def test_pasted_over_several_lines():
    text = "# start it\n$ vllm serve M \\\n  --max-model-len 8192 \\  \n  -tp 2   # two GPUs\n  --port 80 > log.txt 2>&1 &\n"
    assert read(text).arguments == ["--model=M", "--max-model-len=8192", "--tensor-parallel-size=2"]
    assert read(text.replace("\n", "\r\n")) == read(text)
    assert read(text).ignored == ["--port"]


def test_continuations_that_the_shell_has_left_in_the_words():
    words = ["vllm", "serve", "M", "\\", "--max-model-len", "8192\\\n", " ", "-tp", "2\\", "`", "\\\n"]
    assert read_serve_line(words).arguments == ["--model=M", "--max-model-len=8192", "--tensor-parallel-size=2"]


def test_a_command_within_a_command():
    line = read("docker run --entrypoint bash vllm/vllm-openai:v0.11.0 -c 'vllm serve M -tp 2 | tee log'")
    assert line.arguments == ["--model=M", "--tensor-parallel-size=2"] and line.version_hint == "0.11.0"


@pytest.mark.parametrize(("text", "message"), [
    ("", "a server command is wanted: vllm serve MODEL"),
    ("$ HF_TOKEN=abc sudo", "a server command is wanted: vllm serve MODEL"),
    ("HF_TOKEN=abc trtllm-serve M --port 1", "'trtllm-serve' starts no vLLM server"),
    ("python -m sglang.launch_server --model-path M", "'sglang.launch_server' starts no vLLM server"),
    ("docker run lmsysorg/sglang:latest --model M", "'docker' starts no vLLM server"),
    ("vllm bench serve --model M", "'vllm' starts no vLLM server"),
    ("vllm serve", "names no model"),
    ("vllm serve -tp 2", "names no model"),
    ("vllm serve '' -tp 2", "names no model"),
    ("vllm serve M --model N", "names two models: 'M' and 'N'"),
    ("vllm serve --model M --model=M", "names two models: 'M' and 'M'"),
    ("vllm serve M N", "one word too many: 'N'"),
    ("vllm serve M --config serve.yaml", "--config: a file of options is not read"),
    ("vllm serve M --max-modle-len 8", "no option --max-modle-len: did you mean --max-model-len?"),
    (f"vllm serve M --apikey={SECRET}", "no option --apikey: did you mean --api-key?"),
    ("vllm serve M --tp 2", "no option --tp: did you mean -tp?"),
    ("vllm serve M --max-num 2", "no option --max-num: did you mean --max-num-"),
    ("vllm serve M --gpu H100", "no option --gpu: options of plan itself go before the --"),
    ("vllm serve M --zzz 1", "no option --zzz: options of plan itself go before the --"),
    ("vllm serve M --max-model-len", "--max-model-len lacks its value"),
    ("vllm serve M --max-model-len --port 80", "--max-model-len lacks its value"),
    ("vllm serve M -O", "-O lacks its value"),
    ("vllm serve M --max-model-len 1.5K", "--max-model-len: a whole number such as 8192, 16k or 16K is wanted, not '1.5K'"),
    ("vllm serve M --max-num-batched-tokens many", "not 'many'"),
    ("vllm serve M --kv-cache-memory-bytes 1" + "0" * 400, "--kv-cache-memory-bytes: a whole number"),
    (f"vllm serve M --trust-remote-code={SECRET}", "--trust-remote-code takes no value"),
    ("vllm serve M --speculative-config mtp", "--speculative-config: a JSON object is wanted, not 'mtp'"),
    ("vllm serve M --speculative-config [1]", "a JSON object is wanted"),
    ("vllm serve 'M", "the command cannot be split into words: No closing quotation"),
])
def test_what_is_refused_is_refused_in_one_line(text, message):
    with pytest.raises(InputError) as error:
        read(text)
    assert message in str(error.value) and "\n" not in str(error.value) and SECRET not in str(error.value)


def test_no_words_at_all():
    with pytest.raises(InputError, match="a server command is wanted"):
        read_serve_line([])


def test_every_option_has_one_class():
    data = json.loads(resources.files("experiments.planning").joinpath("data/vllm_flags.json").read_text("utf-8"))
    names = [*PLAN_SWITCHES, *PLAN_VALUES, *SPECULATIVE]
    for group in (data["ignored"], *data["unmodelled"].values()):
        assert set(group) <= {"switch", "one", "many", "optional"}
        names += [name for some in group.values() for name in some]
    assert len(names) == len(set(names)) > 380
    assert all(name == name.lower() and "_" not in name and not name.startswith("-") for name in names)
    assert {flag.kind for flag, _ in known_flags().values()} == {"plan", "speculative", "ignored", "unmodelled"}
