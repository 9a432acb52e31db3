"""The commands of `veilmq`, a module each: arguments in, the room that does the work, tables or JSON out.

Imports any room; nothing imports it but `gateway.cli`.
"""
