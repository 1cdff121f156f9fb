"""Admission control: a bounded request queue with priorities, deadlines and fairness between API keys."""

from drut.server.admission.admission import AdmissionControl as AdmissionControl
from drut.server.admission.admission import AdmissionLimits as AdmissionLimits
from drut.server.admission.queued_request import DeadlineError as DeadlineError
from drut.server.admission.queued_request import DrainingError as DrainingError
from drut.server.admission.queued_request import QueuedRequest as QueuedRequest
from drut.server.admission.queued_request import QueueFullError as QueueFullError
from drut.server.admission.request_handle import RequestHandle as RequestHandle
from drut.server.admission.request_record import Observer as Observer
from drut.server.admission.request_record import ObserverGroup as ObserverGroup
from drut.server.admission.request_record import RequestRecord as RequestRecord
