"""Names of vLLM, transformers and llama-cpp-python that users know, and what to use here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from drut.errors import RequestError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

_STORED = "weights are computed as the file stores them"
_FORMAT = "the model's file decides it; `drut convert` makes another one"
_ONE_MACHINE = "a model runs on the CPUs of one machine"
_CPU = "a model runs on CPUs"
_CONSTRAINT = "use constraint=Constraint.json_schema(...), .regex(...), .choice(...) or .lark(...)"
_LORA, _BEAMS = "adapters are not supported", "beam search is not supported"
_MAX_TOKENS = "use max_tokens, the number of new tokens"

SETTINGS = {
    "max_num_seqs": "use max_seqs", "max_num_batched_tokens": "use max_batch_tokens",
    "max_seq_len": "use max_model_len",
    "n_ctx": "use max_model_len", "n_batch": "use max_batch_tokens", "n_ubatch": "use max_batch_tokens",
    "n_threads": "use threads", "n_threads_batch": "use threads", "n_parallel": "use max_seqs",
    "gpu_memory_utilization": "kv_cache_gb sets the size of the KV cache",
    "kv_cache_dtype": "use kv_dtype", "type_k": "use kv_dtype", "type_v": "use kv_dtype",
    "kv_cache_memory_bytes": "use kv_cache_gb",
    "enable_prefix_caching": "use prefix_cache", "scheduling_policy": "use policy",
    "enable_chunked_prefill": "it is always on; chunk_tokens bounds a chunk", "block_size": "pages have 16 tokens",
    "num_scheduler_steps": "use multi_step", "async_scheduling": "use overlap",
    "tensor_parallel_size": _ONE_MACHINE, "pipeline_parallel_size": _ONE_MACHINE, "data_parallel_size": _ONE_MACHINE,
    "tensor_split": _ONE_MACHINE, "n_gpu_layers": _CPU, "device": _CPU, "device_map": _CPU, "cpu_offload_gb": _CPU,
    "swap_space": "preempted requests are computed again", "enforce_eager": "use execution='eager'",
    "dtype": _STORED, "torch_dtype": _STORED, "quantization": _FORMAT, "quantization_config": _FORMAT,
    "load_in_4bit": _FORMAT, "load_in_8bit": _FORMAT, "load_format": _FORMAT,
    "model_path": "use model", "model_name": "use model", "pretrained_model_name_or_path": "use model",
    "revision": "write it in the name: hf:ORG/REPO@REVISION", "trust_remote_code": "code of a model is never run",
    "tokenizer": "the model's own tokenizer is used", "tokenizer_mode": "the model's own tokenizer is used",
    "chat_format": "the model's own chat template is used", "chat_template": "the model's own chat template is used",
    "seed": "set SamplingParams.seed of a request", "verbose": "loading prints nothing",
    "use_mmap": "files are always mapped", "mmproj": "models take text only",
    "speculative_config": "speculation is not supported", "enable_lora": _LORA, "lora_path": _LORA,
}  # fmt: skip
SAMPLING = {
    "max_new_tokens": _MAX_TOKENS, "max_length": _MAX_TOKENS, "max_completion_tokens": _MAX_TOKENS,
    "n_predict": _MAX_TOKENS, "min_new_tokens": "use min_tokens",
    "do_sample": "temperature 0 is greedy", "temp": "use temperature", "repeat_penalty": "use repetition_penalty",
    "num_return_sequences": "use n", "best_of": "use n, and choose", "random_seed": "use seed",
    "stop_strings": "use stop", "stop_sequences": "use stop", "eos_token_id": "use stop_token_ids",
    "structured_outputs": _CONSTRAINT, "guided_decoding": _CONSTRAINT, "response_format": _CONSTRAINT,
    "grammar": _CONSTRAINT, "json_schema": _CONSTRAINT, "regex": _CONSTRAINT,
    "num_beams": _BEAMS, "use_beam_search": _BEAMS, "length_penalty": _BEAMS,
    "typical_p": "top_k, top_p and min_p are the filters", "mirostat_mode": "use temperature, top_p and min_p",
    "no_repeat_ngram_size": "use repetition_penalty or frequency_penalty",
    "logits_processors": "use logit_bias or constraint", "bad_words": "use logit_bias",
}  # fmt: skip
ARGUMENTS = {  # of generate, chat and stream
    "sampling_params": "use params", "generation_config": "use params", "prompt": "use prompts",
    "prompt_token_ids": "give token ids as a prompt", "inputs": "use prompts", "input_ids": "use prompts",
    "conversation": "use messages", "use_tqdm": "use progress", "lora_request": _LORA,
    "priority": "use priorities, one for each prompt", "stream": "call llm.stream(...)",
    "chat_template": "the model's own chat template is used",
    **dict.fromkeys(("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "n", "logprobs"),
                    "use params=SamplingParams(...)"),
    **{name: f"use params=SamplingParams(...): {hint}" for name, hint in SAMPLING.items()},
}  # fmt: skip
COMPLETION = {
    "outputs": "it is one output; use .text and .token_ids", "output": "use .text", "generated_text": "use .text",
    "choices": "it is one choice, use .text; with n > 1 the list has all",
    "prompt": "completions are in the order of the prompts",
    "prompt_token_ids": ".prompt_tokens is their number; llm.tokenizer.encode(prompt) returns them",
    "usage": "use .prompt_tokens, .cached_tokens and .completion_tokens", "message": "use .text",
    "content": "use .text", "cumulative_logprob": "add up .logprobs", "finished": "use .finish_reason",
    "metrics": "use .timings and .why",
}  # fmt: skip


def unknown(what: str, name: str, table: dict[str, str], known: Iterable[str]) -> RequestError:
    """Returns the error for an unknown `name`; `what`: that there is none of its kind. It ends with the hint of
    `table`, or with the nearest of `known`."""
    if name in table:
        return RequestError(f"{what} {name!r}: {table[name]}")
    return RequestError(f"{what} {name!r}{did_you_mean(name, known)}")


def names_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function: an argument that it does not have raises RequestError with our name for it.

    Of a function with further keywords, which it checks itself, only the names of other libraries are refused.
    """
    parameters = inspect.signature(function).parameters
    known, owner = [*parameters], function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    table = SETTINGS if is_open else ARGUMENTS

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known and (name in table or not is_open):
                raise unknown(f"{owner}() has no argument", name, table, known)
        return function(*args, **kwargs)

    return checked
