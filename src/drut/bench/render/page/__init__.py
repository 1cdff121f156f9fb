"""Renders a report as one HTML file: without scripts, without requests, with all foreign text escaped."""
