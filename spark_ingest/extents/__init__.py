"""Segments over the network, for clusters whose nodes share no directory: sealed rows out of a spool to executors.

`server` gives ranges of segments and the sealed file of scope keys to whoever has the identity which that is sealed to
(`credentials`), over Arrow Flight; or the driver puts both into a `storage` (`placing`). `fetching` is the executors'
side. Nothing that leaves here is in clear, but what scopes in mode plain never sealed.

Imports `errors`, `options`, `secrets` and `spool`; nothing is imported here, since who does not use it needs no
Flight.
"""
