"""Floods, forgeries and their price, as EventGuard's paper measures them, against the product's reader.

Imports `experiments` for seeds and loads.
"""
