"""The comparison's gate and the server agree on how prompts are scored."""

from __future__ import annotations

from drut.bench.compare.gate.ask import Asker
from drut.bench.compare.gate.likelihood import likelihood
from drut.bench.engines.engine import Launch
from tests.server.rig import Running


def test_the_gate_reads_the_scores_of_prompts(server: Running) -> None:
    texts = ["The fox jumps", "over the dog"]
    found = Asker(Launch(server.url, server.server.service.name), True, 30.0).score(texts)
    assert ["".join(scored.tokens) for scored in found] == [text[1:] for text in texts]  # a token is a character here
    body = server.complete(texts[0], echo=True, logprobs=5, max_tokens=0, temperature=0).json
    assert found[0].logprobs == body["choices"][0]["logprobs"]["token_logprobs"][1:]
    own = likelihood(found, found)
    assert (own.increase, own.divergence) == (0.0, 0.0)
