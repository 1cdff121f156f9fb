"""The techniques, one record each; a new technique is a new record in `TECHNIQUES`.

The cells are sized for a model of 135 million weights on two CPUs: each serves a few requests a second there.
"""

from __future__ import annotations

from drut.bench.ablate.recipe import AblationRecipe, AblationTrial, Side
from drut.bench.compare.schema import Cell
from drut.errors import RequestError

ONE_STREAM = Cell("one stream", "synthetic:input=16,output=48", concurrency=1)
EIGHT_STREAMS = Cell("eight streams", "synthetic:input=16,output=96", concurrency=8)
PROMPTS = Cell("prompts alone", "synthetic:input=512,output=1", concurrency=1)
LONG_CONTEXT = Cell("a long context", "synthetic:input=2000,output=96", concurrency=1)
SHORT_ANSWERS = Cell("short answers", "synthetic:input=64,output=8", concurrency=4)
EQUAL_LENGTHS = Cell("equal lengths", "synthetic:input=32,output=48", concurrency=4)
MIXED_LENGTHS = Cell("answers of 8 to 160 tokens", "synthetic:input=32,output=uniform:8:160", concurrency=8)
MIXED_PROMPTS = Cell("prompts of 32 to 1000 tokens", "synthetic:input=uniform:32:1000,output=48", concurrency=4)
SHARED_PREFIX = Cell("a shared prefix", "shared-prefix:groups=2,prefix=768,suffix=32,output=16", concurrency=2)
UNRELATED = Cell("unrelated prompts", "synthetic:input=800,output=16", concurrency=2)
FREE_ANSWERS = Cell("answers far below their limit", "gsm8k:max_tokens=512", concurrency=12)

GREEDY_CHAT = Cell("greedy answers", "chat:max_tokens=256", concurrency=1)
FILLED_FORMS = Cell("answers to a schema", "gsm8k:max_tokens=256", concurrency=1)

_FIELDS = ("customer_identification_number", "number_of_items_ordered", "total_price_in_dollars",
           "expected_days_until_delivery")
FORM = {"type": "json_schema", "json_schema": {"name": "order", "strict": True, "schema": {
    "type": "object", "additionalProperties": False, "required": list(_FIELDS),
    "properties": {name: {"type": "integer", "minimum": 0, "maximum": 999} for name in _FIELDS}}}}
SMALL_CACHE = ("--kv-cache-gb", "0.06")
ONE_STEP = ("--multi-step", "1")

_ALL = (
    AblationRecipe(
        name="paging", title="Paged KV cache",
        about="The KV cache is allocated in pages of 16 tokens as sequences grow. Off, a sequence is admitted only "
        "when pages for its maximum number of tokens are reserved, as with one contiguous cache for each sequence "
        "(--reserve-quantile 1). Both servers have 60 MB for keys and values.",
        theory="If responses end far below their limit, reserved pages stay empty: more sequences fit, so throughput "
        "rises and waiting falls, while each stream shares its steps with more streams. If all sequences fit, nothing "
        "changes.",
        on=Side((*SMALL_CACHE, "--reserve-quantile", "0")), off=Side((*SMALL_CACHE, "--reserve-quantile", "1")),
        trials=(AblationTrial(FREE_ANSWERS, {"output_tokens_per_s": "helps", "ttft_ms_p50": "helps",
                                             "tpot_ms_p50": "costs"},
               body={"temperature": 0.2, "top_p": 0.9, "seed": 1}, warmup_s=5.0, duration_s=8.0, chat=True),
         AblationTrial(EQUAL_LENGTHS, {"output_tokens_per_s": "no effect"}))),
    AblationRecipe(
        name="prefix-cache", title="Prefix cache",
        about="The KV pages of a prompt stay, and a later prompt with the same prefix shares them (--prefix-cache).",
        theory="A prompt costs only its new tokens: with 768 of 800 tokens shared the time to first token should fall "
        "many times over. Prompts with nothing in common gain nothing, and the lookup should cost nothing.",
        on=Side(("--prefix-cache",)), off=Side(("--no-prefix-cache",)),
        trials=(AblationTrial(SHARED_PREFIX, {"ttft_ms_p50": "helps", "output_tokens_per_s": "helps"}, warmup_s=4.0),
         AblationTrial(UNRELATED, {"ttft_ms_p50": "no effect"}))),
    AblationRecipe(
        name="chunked-prefill", title="Chunked prefill",
        about="A prompt is computed in chunks together with decoding requests, small enough to stall no stream. Off, "
        "it is computed whole in one step (--chunk-tokens 0).",
        theory="The longest gaps of running streams should shrink from a whole prompt's time to a chunk's, at the cost "
        "of the prompt itself, whose first token comes later. If all prompts are short, there is nothing to split.",
        on=Side(), off=Side(("--chunk-tokens", "0")),
        trials=(AblationTrial(MIXED_PROMPTS, {"itl_ms_p99": "helps", "ttft_ms_p50": "costs"}, warmup_s=3.0,
                              duration_s=8.0),
         AblationTrial(EQUAL_LENGTHS, {"itl_ms_p99": "no effect"}))),
    AblationRecipe(
        name="continuous-batching", title="Continuous batching",
        about="A request joins the batch at the next step. Off, a batch is all requests that wait when nothing runs, "
        "and the next one begins when all of them are done (--no-continuous-batching).",
        theory="With answers of different lengths a static batch waits for its longest: throughput and time to first "
        "token should gain much, and each stream, which then decodes in a larger batch, loses some of it. One user "
        "alone never waits for another.",
        on=Side(("--continuous-batching",)), off=Side(("--no-continuous-batching",)),
        trials=(AblationTrial(MIXED_LENGTHS, {"output_tokens_per_s": "helps", "ttft_ms_p50": "helps",
                                              "tpot_ms_p50": "costs"},
               warmup_s=3.0),
         AblationTrial(ONE_STREAM, {"output_tokens_per_s": "no effect"}))),
    AblationRecipe(
        name="fusion", title="Fused operations",
        about="Norm, Q, K, V, rope and the write to the cache are one operation, as are norm, gate, up and activation, "
        "and projection and residual sum. Off, each is an operation of its own with a buffer between (--no-fusion).",
        theory="Each operation ends in a barrier of all threads, which costs the same for one row as for many: "
        "decoding one stream should gain, a long prompt's multiplications should hide it.",
        on=Side(("--fusion",)), off=Side(("--no-fusion",)),
        trials=(AblationTrial(ONE_STREAM, {"tpot_ms_p50": "helps"}),
                AblationTrial(PROMPTS, {"ttft_ms_p50": "no effect"}))),
    AblationRecipe(
        name="replay", title="Replay of a recorded plan",
        about="A step is one native call that walks a recorded plan. Off, each operation is a call of its own "
        "(--execution eager). Both without multi-step decoding, which is made of replays.",
        theory="What a call costs is the same for one row as for many, so one stream should gain and a long prompt "
        "should not.",
        on=Side((*ONE_STEP, "--execution", "replay")), off=Side((*ONE_STEP, "--execution", "eager")),
        trials=(AblationTrial(ONE_STREAM, {"tpot_ms_p50": "helps"}),
                AblationTrial(PROMPTS, {"ttft_ms_p50": "no effect"}))),
    AblationRecipe(
        name="overlap", title="Overlap of host and kernels",
        about="The next step is scheduled, and the last one's text made, while a step runs. Off, they take turns "
        "(--no-overlap). Both without multi-step decoding.",
        theory="The host's share of a step disappears behind the kernels, if a CPU is free for it: a gain "
        "for many short steps, none for long ones.",
        on=Side((*ONE_STEP, "--overlap")), off=Side((*ONE_STEP, "--no-overlap")),
        trials=(AblationTrial(EIGHT_STREAMS, {"output_tokens_per_s": "helps"}),
                AblationTrial(PROMPTS, {"ttft_ms_p50": "no effect"}))),
    AblationRecipe(
        name="multi-step", title="Multi-step decoding",
        about="Up to 16 decoding steps follow each other in one native call, if all running requests decode and none "
        "waits. Off, the host runs between every two (--multi-step 1).",
        theory="Streams that decode undisturbed should gain the host's share. Where requests come and go all the time "
        "there are no such phases.",
        on=Side(("--multi-step", "16")), off=Side(ONE_STEP),
        trials=(AblationTrial(EIGHT_STREAMS, {"output_tokens_per_s": "helps"}),
         AblationTrial(SHORT_ANSWERS, {"output_tokens_per_s": "no effect"}))),
    AblationRecipe(
        name="jump-forward", title="Forced tokens",
        about="Tokens without an alternative in a schema, such as field names, are taken at once and computed like "
        "a prompt. Off, each of these tokens is a decoding step (--no-forced-tokens).",
        theory="Answers that are mostly field names should be done sooner; answers without a schema are what they "
        "were.",
        on=Side(("--forced-tokens",)), off=Side(("--no-forced-tokens",)),
        trials=(AblationTrial(FILLED_FORMS, {"e2e_ms_p50": "helps"}, body={"response_format": FORM}, chat=True),
         AblationTrial(ONE_STREAM, {"tpot_ms_p50": "no effect"}))),
    AblationRecipe(
        name="speculation", title="Speculative decoding",
        about="Tokens are drafted from the text so far and from past outputs, and several are verified in one step, "
        "where that is expected to pay (--speculate auto). Off, each token is a step (--speculate none).",
        theory="Greedy answers of a small model repeat themselves, so one stream should gain. Of random prompts at "
        "temperature 1 nothing can be drafted: then nothing is verified, and nothing should be lost.",
        on=Side(("--speculate", "auto")), off=Side(("--speculate", "none")),
        trials=(AblationTrial(GREEDY_CHAT, {"tpot_ms_p50": "helps"}, body={"temperature": 0.0}, warmup_s=3.0,
                              duration_s=8.0, chat=True),
                AblationTrial(EIGHT_STREAMS, {"output_tokens_per_s": "no effect"}, body={"temperature": 1.0}))),
    AblationRecipe(
        name="weights-8", title="Weights of 8 bits",
        about="The model's matrices in Q8_0 (on) and in BF16 (off), made of the same file.",
        theory="Decoding one stream reads all weights for each token, so it should gain by the ratio of the bytes, 1.9 "
        "at most. Prompts are bound by multiplications, which are faster in int8 than in bf16 on most CPUs.",
        on=Side(weights="Q8_0"), off=Side(weights="BF16"),
        trials=(AblationTrial(ONE_STREAM, {"tpot_ms_p50": "helps"}), AblationTrial(PROMPTS, {"ttft_ms_p50": "helps"}))),
    AblationRecipe(
        name="weights-4", title="Weights of 4 bits",
        about="The model's matrices in Q4_0 (on) and in Q8_0 (off), made of the same file.",
        theory="Decoding should gain again by up to the ratio of the bytes, 1.9. Both multiply in int8, so prompts "
        "should not gain.",
        on=Side(weights="Q4_0"), off=Side(weights="Q8_0"),
        trials=(AblationTrial(ONE_STREAM, {"tpot_ms_p50": "helps"}),
                AblationTrial(PROMPTS, {"ttft_ms_p50": "no effect"}))),
    AblationRecipe(
        name="kv-16", title="Keys and values of 16 bits",
        about="The KV cache in bf16 (on) and in fp32 (off).",
        theory="Decoding reads the whole context for each token: half the bytes should show where the context is long, "
        "and not where the weights are nearly all that is read.",
        on=Side(("--kv-dtype", "bf16")), off=Side(("--kv-dtype", "fp32")),
        trials=(AblationTrial(LONG_CONTEXT, {"tpot_ms_p50": "helps"}),
                AblationTrial(ONE_STREAM, {"tpot_ms_p50": "no effect"}))),
    AblationRecipe(
        name="kv-8", title="Keys and values of 8 bits",
        about="The KV cache in int8 (on) and in bf16 (off).",
        theory="As with 16 bits, once more half the bytes; and integer products, where the CPU has them.",
        on=Side(("--kv-dtype", "int8")), off=Side(("--kv-dtype", "bf16")),
        trials=(AblationTrial(LONG_CONTEXT, {"tpot_ms_p50": "helps"}),
                AblationTrial(ONE_STREAM, {"tpot_ms_p50": "no effect"}))),
    AblationRecipe(
        name="threads", title="A second thread",
        about="Two kernel threads (on) and one (off).",
        theory="Prompts, bound by multiplications, should gain by nearly two. One stream gains as far as one CPU alone "
        "does not saturate the memory bandwidth.",
        on=Side(("--threads", "2")), off=Side(("--threads", "1")),
        trials=(AblationTrial(PROMPTS, {"ttft_ms_p50": "helps"}), AblationTrial(ONE_STREAM, {"tpot_ms_p50": "helps"}))),
)

TECHNIQUES: dict[str, AblationRecipe] = {recipe.name: recipe for recipe in _ALL}


def chosen(names: str | None) -> list[AblationRecipe]:
    """Returns the techniques of a comma-separated list, in the order given; all for None. Raises RequestError."""
    if names is None:
        return list(TECHNIQUES.values())
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in TECHNIQUES:
            raise RequestError(f"--techniques: unknown technique {name!r}; techniques are {', '.join(TECHNIQUES)}")
        if wanted.count(name) > 1:
            raise RequestError(f"--techniques: {name} is given twice")
    return [TECHNIQUES[name] for name in wanted]
