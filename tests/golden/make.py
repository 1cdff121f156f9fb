"""Golden logits of the tiny checkpoints, computed by `transformers` in fp32.

    python tests/golden/make.py --write [NAME ...]   write NAME.npz beside this file, of all or of these
    python tests/golden/make.py --check [NAME ...]   recompute and compare; exit code 1 if they differ

Needs torch and transformers; what it writes is read without either.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.golden.weights import HERE, NAMES, config, digest, token_ids, write_checkpoint

PROMPTS = {"short": (41, 41), "long": (300, 8)}  # name: (tokens, trailing positions whose logits are kept)
NEW_TOKENS = 8
ROUTER_GAP = 2e-5  # relative to the largest: ten times what two fp32 implementations may differ by in a router's input
TOLERANCE = 1e-5  # relative: max |a - b| / max |b|; two runs differ only in the order of torch's sums


def load(directory: Path) -> torch.nn.Module:
    """The checkpoint as an fp32 model with eager attention, on the CPU."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            raise SystemExit(f"{directory.name}: {kind} {report[kind]}")
    watch_routers(model)
    return model.eval()


def watch_routers(model: torch.nn.Module) -> None:
    """Ends the run where a router's last choice and its first rejected one are too close to be a golden choice."""
    for name, module in model.named_modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            module.register_forward_hook(lambda router, args, out, name=name: check_choice(router, out[0], name))


def check_choice(router: torch.nn.Module, scores: torch.Tensor, name: str) -> None:
    """`scores` (rows, experts) are what the router chooses by, before its correction."""
    bias = getattr(router, "e_score_correction_bias", None)
    scores = scores if bias is None else scores.sigmoid() + bias
    best = scores.sort(dim=-1, descending=True).values
    gap = float((best[:, router.top_k - 1] - best[:, router.top_k]).min() / best.abs().max())
    if gap < ROUTER_GAP:
        raise SystemExit(f"{name}: two experts' scores differ by {gap:.1e} only: give the checkpoint another seed")


@torch.inference_mode()
def logits(model: torch.nn.Module, ids: list[int]) -> np.ndarray:
    """fp32 logits (len(ids), vocab), the whole sequence in one pass."""
    return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def greedy(model: torch.nn.Module, prompt: list[int]) -> tuple[list[int], np.ndarray]:
    """Continuation ids and the logits (NEW_TOKENS, vocab) they were chosen from, a pass for each."""
    ids, rows = list(prompt), []
    for _ in range(NEW_TOKENS):
        rows.append(logits(model, ids)[-1])
        second, first = np.sort(rows[-1])[-2:]
        if first - second < 1e-3 * np.abs(rows[-1]).max():
            raise SystemExit("the two best logits of a greedy step are too close to be a golden choice")
        ids.append(int(rows[-1].argmax()))
    return ids[len(prompt) :], np.stack(rows)


def golden(name: str) -> dict[str, np.ndarray]:
    """What NAME.npz holds."""
    with tempfile.TemporaryDirectory() as scratch:
        model = load(write_checkpoint(name, Path(scratch) / name))
        entry: dict[str, np.ndarray] = {"weights_sha256": np.array(digest(name))}
        for prompt, (count, kept) in PROMPTS.items():
            ids = token_ids(name, prompt, count)
            new_ids, new_logits = greedy(model, ids)
            entry[f"{prompt}_ids"] = np.array(ids, np.int32)
            entry[f"{prompt}_logits"] = logits(model, ids)[-kept:]
            entry[f"{prompt}_new_ids"] = np.array(new_ids, np.int32)
            entry[f"{prompt}_new_logits"] = new_logits
    return entry


def differences(entry: dict[str, np.ndarray], committed: dict[str, np.ndarray]) -> list[str]:
    """One line for each array of `entry` that is not what is committed."""
    lines = [f"{key}: only on one side" for key in sorted(entry.keys() ^ committed.keys())]
    for key in sorted(entry.keys() & committed.keys()):
        new, old = entry[key], committed[key]
        if new.shape != old.shape:
            lines.append(f"{key}: shape {new.shape}, committed {old.shape}")
        elif not np.issubdtype(new.dtype, np.floating):
            if not np.array_equal(new, old):
                lines.append(f"{key}: differs")
        elif not (error := np.abs(new - old).max() / np.abs(old).max()) <= TOLERANCE:
            lines.append(f"{key}: relative difference {error:.1e}, above {TOLERANCE:.0e}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the golden files")
    mode.add_argument("--check", action="store_true", help="compare with the committed ones")
    parser.add_argument("names", nargs="*", default=NAMES, help="checkpoints (default: all)")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    for name in args.names:
        entry, path = golden(name), HERE / f"{name}.npz"
        if args.write:
            np.savez_compressed(path, **entry)
        else:
            with np.load(path) as committed:
                lines = differences(entry, dict(committed))
            failed = failed or bool(lines)
            for line in lines:
                print(f"{name}: {line}")
        top = np.abs(entry["short_logits"]).max()
        print(f"{name}: {config(name)['model_type']}, {path.stat().st_size} bytes, |logit| up to {top:.1f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
