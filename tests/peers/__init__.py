"""Brokers, clients and device libraries of others, started as they come, and questions about VeilMQ beside them.

`make peers` installs them and writes `docs/reference/peers.md`.
"""
