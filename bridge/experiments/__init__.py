"""The papers' figures, drawn with seeds: what all experiments share, and those of secret forwarding and of tracing.

Not the product's machines under an adversary: those are driven by `bridge/sim`.
"""
