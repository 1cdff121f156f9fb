"""Admission control: a bounded request queue with priorities, deadlines and fairness between API keys."""

from drut.server.admission.admission import Admission as Admission
from drut.server.admission.admission import AdmissionLimits as AdmissionLimits
from drut.server.admission.ask import Ask as Ask
from drut.server.admission.ask import DeadlineError as DeadlineError
from drut.server.admission.ask import DrainingError as DrainingError
from drut.server.admission.ask import QueueFullError as QueueFullError
from drut.server.admission.record import Observer as Observer
from drut.server.admission.record import Record as Record
from drut.server.admission.record import Several as Several
from drut.server.admission.ticket import Ticket as Ticket
