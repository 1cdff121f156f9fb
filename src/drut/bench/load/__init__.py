"""Sends a workload to a server: when (schedule), how (http, client), by whom (driver, worker, fleet)."""
