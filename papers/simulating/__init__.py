"""`veilmq simulate`: figures of the papers from the command line, sweeps over processes, and their report.

Imports the experiments of `bridge`; imported by the command line only.
"""
