"""Structured and self-organising overlays at the papers' size: planes, congestion, trees that change.

Imports `experiments` for seeds; the routing itself is `bridge/topology` and `bridge/organising`.
"""
