"""How good a model's answers are, beside its own weights in float32 or another model: figures, intervals, a gate."""
