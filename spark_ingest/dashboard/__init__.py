"""The live page: one process that looks at a spool and endpoints, any number of browsers that watch.

Imports `opening`, `secrets`, `spool`.
"""
