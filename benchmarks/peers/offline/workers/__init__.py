"""One program for each engine, run by that engine's interpreter: see `serve` in benchmarks/worker.py for the protocol.

Each answers, besides `about` -> {"engine": name, versions and configuration}:

{"do": "load", "model": PATH, "threads": N}            -> {"load_s": s}
{"do": "prefill", "prompts": [IDS, ...]}               -> {"seconds": [s, ...], "ids": [first id, ...]}
    one prompt after the other, each to its first token
{"do": "decode", "prompts": [IDS, ...], "new_tokens": N}
    -> {"tokens": n, "seconds": s, "steps": n, "ids": [first id, ...]}
    all prompts at once, greedy, end of sequence ignored; only the phase in which all of them decode counts

Only the standard library and the engine may be imported: an engine's environment has nothing else.
"""
