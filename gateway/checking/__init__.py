"""`veilmq check`: finds faults of a configuration, and the fate of topics, before a start.

Imports any room; imported by the command line only.
"""
