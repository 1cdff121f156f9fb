"""Admission control: a bounded request queue with priorities, deadlines and fairness between API keys."""

from drut.server.admission.admission import AdmissionControl as AdmissionControl
from drut.server.admission.admission import AdmissionLimits as AdmissionLimits
from drut.server.admission.ask import DeadlineError as DeadlineError
from drut.server.admission.ask import DrainingError as DrainingError
from drut.server.admission.ask import QueuedRequest as QueuedRequest
from drut.server.admission.ask import QueueFullError as QueueFullError
from drut.server.admission.record import Observer as Observer
from drut.server.admission.record import ObserverGroup as ObserverGroup
from drut.server.admission.record import RequestRecord as RequestRecord
from drut.server.admission.ticket import RequestHandle as RequestHandle
