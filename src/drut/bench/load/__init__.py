"""Sends a workload to a server: arrival times (schedule), HTTP (http, client), processes (driver, worker, fleet)."""
