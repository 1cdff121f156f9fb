"""Room that answers under way will still want, so that no more is admitted than the KV cache can hold to the end."""

from __future__ import annotations

from collections.abc import Collection

from drut.cache.groups import Group
from drut.cache.kinds import FullGroup
from drut.engine.lengths import LengthEstimate
from drut.engine.request import Request

FULL = FullGroup()


class Reserve:
    """Of each answer as many tokens as the share `quantile` of such answers does not exceed; 1 reserves up to its
    limit, and so does any quantile before lengths are known. 0: a page of each running request, however long it gets.
    """

    def __init__(self, quantile: float = 0.0) -> None:
        self.quantile = quantile
        self.lengths = LengthEstimate()

    def tokens(self, request: Request, quantile: float) -> int:
        """Prompt and answer together, in the end."""
        made = max(request.known - request.prompt_tokens, 0)
        length = self.lengths.length(made, quantile)
        return request.limit if length is None else min(request.prompt_tokens + length, request.limit)

    def to_start(self, request: Request, group: Group = FULL) -> int:
        """Pages of a KV group that a request has to have in prospect when it is admitted, those it shares included."""
        known = len(request.tokens)
        return group.max_pages(max(known, self.tokens(request, self.quantile)) if self.quantile else known)

    def to_go_on(self, request: Request, group: Group = FULL, index: int = 0) -> int:
        """Pages of a group, the cache's number `index`, that a running request will take beside those it has."""
        held = request.table.held(index)
        wanted = max(1, self.to_start(request, group) - held) if self.quantile else 1
        return min(wanted, max(0, group.max_pages(request.limit) - held))

    def ended(self, request: Request, others: Collection[Request]) -> None:
        """Learns from a request that has ended, beside `others` that have not."""
        made = len(request.output)
        if made:
            self.lengths.add(made, ended=request.finish_reason == "stop", running=(len(r.output) for r in others))
