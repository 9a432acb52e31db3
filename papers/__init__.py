"""The evaluation of the five papers: experiments, a simulator of whole overlays, and the command that draws figures.

No gateway needs this package. Nothing but tests, the demo's liar (by name) and the command `veilmq simulate` (by its
entry point) reaches it.
"""
