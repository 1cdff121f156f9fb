"""Reserved pages: KV pages that running requests will still need, by an estimate of their final lengths. Admission
leaves them free, so that fewer requests must be preempted later."""

from __future__ import annotations

from collections.abc import Collection

from drut.cache.groups import KvGroup
from drut.cache.kinds import FullGroup
from drut.engine.request.request import Request
from drut.engine.schedule.lengths import LengthEstimate

FULL = FullGroup()


class Reserve:
    """Turns estimates of output lengths into numbers of pages.

    `quantile`: the share of requests whose final length the reserved pages hold. 1 reserves up to the length limit, and
    so does every other quantile before lengths are known; 0 reserves one page for each running request.
    """

    def __init__(self, quantile: float = 0.0) -> None:
        self.quantile = quantile
        self.lengths = LengthEstimate()

    def tokens(self, request: Request, quantile: float) -> int:
        """Returns the final number of tokens, prompt and output, that the share `quantile` of requests like this one
        does
        not exceed."""
        made = max(request.num_output_tokens, 0)
        length = self.lengths.length(made, quantile)
        return request.limit if length is None else min(request.prompt_tokens + length, request.limit)

    def pages_to_admit(self, request: Request, group: KvGroup = FULL) -> int:
        """Returns the pages of a KV group that must be available to admit a request, shared ones included."""
        known = len(request.tokens)
        return group.max_pages(max(known, self.tokens(request, self.quantile)) if self.quantile else known)

    def pages_to_continue(self, request: Request, group: KvGroup = FULL, index: int = 0) -> int:
        """Returns how many more pages of KV group number `index` are reserved for a running request."""
        held = request.table.held(index)
        wanted = max(1, self.pages_to_admit(request, group) - held) if self.quantile else 1
        return min(wanted, max(0, group.max_pages(request.limit) - held))

    def learn(self, request: Request, others: Collection[Request]) -> None:
        """Adds the length of a request that has ended to the estimate; `others` have not ended yet."""
        made = len(request.output_ids)
        if made:
            self.lengths.add(made, ended=request.finish_reason == "stop", running=(len(r.output_ids) for r in others))
