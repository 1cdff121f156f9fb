"""Flags of other load clients: each is an error that names ours."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from drut.errors import RequestError

_LENGTHS = "--workload synthetic:input=N,output=N"
_GIVEN = "nothing: it is always reported"
VLLM = {
    "--num-prompts": "--num-requests", "--request-rate": "--rate", "--max-concurrency": "--users",
    "--burstiness": "--arrivals gamma --cv X, X = burstiness^-0.5",
    "--ramp-up-strategy": "--rate A --ramp-to B", "--ramp-up-start-rps": "--rate A --ramp-to B",
    "--ramp-up-end-rps": "--rate A --ramp-to B", "--base-url": "--url", "--host": "--url", "--port": "--url",
    "--backend": "--api chat or completions", "--endpoint-type": "--api chat or completions",
    "--served-model-name": "--model", "--dataset-name": "--workload NAME or --dataset FILE",
    "--dataset-path": "--dataset",
    "--random-input-len": _LENGTHS, "--random-output-len": _LENGTHS,
    "--random-range-ratio": "--workload synthetic:input=uniform:LOW:HIGH",
    "--random-prefix-len": "--workload shared-prefix:prefix=N", "--input-len": _LENGTHS, "--output-len": _LENGTHS,
    "--sharegpt-output-len": "output_tokens in the lines of --dataset",
    "--custom-output-len": "output_tokens in the lines of --dataset",
    "--goodput": "--slo ttft=MS,tpot=MS,e2e=MS", "--ignore-eos": "a workload of exact lengths, such as synthetic",
    "--num-warmups": "--warmup S", "--percentile-metrics": _GIVEN, "--metric-percentiles": _GIVEN,
    "--save-result": "--out DIR", "--save-detailed": "--out DIR", "--result-dir": "--out DIR",
    "--result-filename": "--out DIR", "--disable-tqdm": "--quiet", "--extra-body": "--body",
    "--temperature": "--body '{\"temperature\": X}'", "--top-p": "--body '{\"top_p\": X}'",
    "--top-k": "--body '{\"top_k\": N}'", "--logprobs": "--body '{\"logprobs\": true}'",
}
GUIDELLM = {
    "--target": "--url", "--max-requests": "--num-requests", "--max-seconds": "--duration",
    "--rate-type": "--rate or --users", "--data": "--workload or --dataset",
}
AIPERF = {"--concurrency": "--users", "--request-count": "--num-requests"}


def add_foreign(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, hidden from the help."""
    for client, flags in (("vllm bench serve", VLLM), ("guidellm", GUIDELLM), ("aiperf", AIPERF)):
        for flag, ours in flags.items():
            parser.add_argument(flag, action=_Foreign, nargs="*", dest=argparse.SUPPRESS, help=argparse.SUPPRESS,
                                const=(client, ours))


class _Foreign(argparse.Action):
    """Raises the error when the flag is parsed."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> NoReturn:
        client, ours = self.const
        raise RequestError(f"{option_string} is a flag of {client}; here it is {ours}")
