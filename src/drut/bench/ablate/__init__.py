"""Measures each technique of an engine, off and on, with work that should benefit and work that should not."""
