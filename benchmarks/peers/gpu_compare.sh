#!/usr/bin/env bash
# vLLM, SGLang and TensorRT-LLM on the same work on one NVIDIA GPU, each in an environment of its own with a pinned
# version, by `drut bench compare`.
#
#   benchmarks/peers/gpu_compare.sh [OUT]              results go to OUT (default: build/gpu-compare)
#
# UNVERIFIED: written from the manuals and by what these engines do on CPUs; never run on a GPU yet. An engine that
# cannot be installed or does not start is named, and the others go on.
#
# Needed: Linux on x86-64, a driver for CUDA 13, about 40 GB of disk and 24 GB of GPU memory, python3.12 with venv; for
# TensorRT-LLM also the CUDA toolkit and libopenmpi-dev. After the downloads it takes up to 10 minutes: three engines
# start within about 4, then take turns at 2 kinds of work, 4 rounds of 12 s each, which is 5.
#
#   MODEL=hf:ORG/REPO      another model (default: SmolLM2 1.7B, Apache-2.0, 3.4 GB)
#   ENGINES="vllm sglang"  fewer engines
#   PYTHON=python3.12      which interpreter makes the environments
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:-build/gpu-compare}
model=${MODEL:-hf:HuggingFaceTB/SmolLM2-1.7B-Instruct}
python=${PYTHON:-python3.12}
read -ra engines <<< "${ENGINES:-vllm sglang tensorrt-llm}"
declare -A packages=([vllm]=vllm==0.32.0 [sglang]=sglang==0.5.23 [tensorrt-llm]=tensorrt-llm==1.2.1)
# A third of the GPU's memory each: all of them stay loaded, and are held while another has its turn.
declare -A share=(
  [vllm]='--gpu-memory-utilization 0.3'
  [sglang]='--mem-fraction-static 0.3'
  [tensorrt-llm]='--kv_cache_free_gpu_memory_fraction 0.5'
)
export DRUT_PEERS=${DRUT_PEERS:-$PWD/build/peers-gpu}
export PIP_DISABLE_PIP_VERSION_CHECK=1

if ! nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader; then
  echo 'gpu_compare: there is no NVIDIA GPU here, or no driver for it' >&2
  exit 2
fi

make --no-print-directory setup
drut=.venv/bin/drut
.venv/bin/pip install --quiet 'drut[hf,gpu]'

entries=()
for engine in "${engines[@]}"; do
  folder=$DRUT_PEERS/$engine
  if [[ ! -e $folder/ready ]]; then
    echo "installing ${packages[$engine]} into $folder"
    "$python" -m venv --clear "$folder"
    if ! "$folder/bin/pip" install --quiet "${packages[$engine]}"; then
      echo "gpu_compare: no $engine: its installation failed" >&2
      continue
    fi
    touch "$folder/ready"
  fi
  entries+=("$engine=$engine ${share[$engine]}")
done
if [[ ${#entries[@]} -eq 0 ]]; then
  echo 'gpu_compare: no engine to compare' >&2
  exit 1
fi

hf=$("$drut" pull "$model")
# The answers are checked before any speed counts: greedy agreement, sums, schemas, lengths.
"$drut" bench compare --engines "${entries[@]}" --hf "$hf" --context 4096 --sequences 64 \
  --cells chat@16 long-prompt@8 --rounds 4 --warmup 2 --duration 8 --grace 10 --out "$out"
"$drut" bench report "$out"
