"""Azure's traces of 2023: times and lengths, without contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drut.bench.work import Session
from drut.bench.workloads.packed import read_text
from drut.bench.workloads.traces import Trace, TraceArrival
from drut.bench.workloads.workload import WorkloadContext, WorkloadSource


def read_azure(name: str) -> list[TraceArrival]:
    """Returns the rows of a packed Azure trace, in order of time."""
    rows = []
    for line in read_text(name + ".csv").splitlines()[1:]:
        at_us, n, answer = map(int, line.split(","))
        rows.append(TraceArrival(at_us / 1e6, n, answer))
    return rows


@dataclass(frozen=True)
class Azure(Trace):
    """Unrelated prompts, at the recorded times and with the recorded lengths."""

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        rows, texts = read_azure(self.name), context.texts
        self.report(context, rows)

        def make() -> Iterator[Session]:
            for i, row in enumerate(rows):
                n = context.cap("input", row.input, self.max_input)
                answer = context.cap("output", row.output, self.max_output)
                turn = context.ask(texts.text(n, i), answer, tokens=n, exact=True)
                yield Session(f"{self.name}-{i}", [turn], at_s=row.at_s * self.stretch)

        return make()


@dataclass(frozen=True)
class AzureCode(Azure):
    name = "azure-code"
    help = "trace of a coding service, 8,819 requests of 57 minutes in bursts: long prompts, short answers"
    source = WorkloadSource("Azure LLM inference trace 2023, code (Splitwise, ISCA 2024)",
                            "https://github.com/Azure/AzurePublicDataset", "CC-BY-4.0")


@dataclass(frozen=True)
class AzureConv(Azure):
    name = "azure-conv"
    help = "trace of a chat service, 19,366 requests of 58 minutes, nearly Poisson"
    source = WorkloadSource("Azure LLM inference trace 2023, conversation (Splitwise, ISCA 2024)",
                            "https://github.com/Azure/AzurePublicDataset", "CC-BY-4.0")
