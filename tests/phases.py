"""Which test runs when, with workers: files side by side first, then the tests marked `serial`, alone."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SERIAL = "@serial"  # ends the ids of serial tests as the workers give them


class Phases(LoadScopeScheduling):
    """A file's tests stay together, in order of collection. Serial tests wait until the other workers have ended."""

    def _split_scope(self, nodeid: str) -> str:
        return SERIAL if nodeid.endswith(SERIAL) else nodeid.split("::", 1)[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if SERIAL in self.workqueue:
            self.workqueue.move_to_end(SERIAL)
        if list(self.workqueue) != [SERIAL] or self._is_alone(node):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if list(self.workqueue) != [SERIAL]:
            super()._reschedule(node)
            return
        # A worker runs a test once it knows the next one or that there is none: without work, all but one must end.
        chosen, *others = [n for n in self.nodes if not n.shutting_down] or [node]
        for other in others:
            other.shutdown()
        if not chosen.shutting_down:
            self._assign_work_unit(chosen)

    def _is_alone(self, node: WorkerController) -> bool:
        return not any(self._pending_of(work) for other, work in self.assigned_work.items() if other is not node)
