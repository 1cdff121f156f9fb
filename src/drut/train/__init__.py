"""Trains drafters: small models whose tokens a target verifies. Training needs torch, of the extra `train`."""
