"""The live page: a process looking at a spool and endpoints, any number of browsers that watch.

Imports `opening`, `secrets`, `spool`.
"""
