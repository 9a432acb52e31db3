"""The commands of `veilmq`, a single module each: parse arguments, call the room that does the work, print tables or
JSON.

Imports any room; only `gateway.cli` imports it.
"""
