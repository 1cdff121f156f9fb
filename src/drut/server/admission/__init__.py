"""The door to the engine."""

from drut.server.admission.direct import Admission as Admission
from drut.server.admission.direct import AdmissionLimits as AdmissionLimits
from drut.server.admission.direct import Ask as Ask
from drut.server.admission.direct import DeadlineError as DeadlineError
from drut.server.admission.direct import DrainingError as DrainingError
from drut.server.admission.direct import QueueFullError as QueueFullError
from drut.server.admission.direct import Ticket as Ticket
