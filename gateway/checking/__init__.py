"""`veilmq check`: whether a configuration would start and do what it says, before it is started.

Imports any room; imported by the command line only.
"""
