"""A small sealed spool to try queries on, made in memory without brokers.

Imports `receiver`, `receiving`, `secrets`, `spool`.
"""
