"""The papers' mechanisms on data that somebody recorded: backbones and their demands, flights, meetings, quotes.

Imports `experiments` for seeds and figures, `overlays` for overlays and heuristics; reads no file.
"""
