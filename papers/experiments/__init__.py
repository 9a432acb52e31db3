"""The papers' figures, drawn with seeds: common parts of all experiments, and figures of secret forwarding and tracing.

Not the product's machines under an adversary: `papers/sim` drives them.
"""
