"""Segments over the network, for clusters whose nodes share no directory: sealed rows out of a spool to executors.

`server` gives ranges of segments and the sealed file of scope keys to holders of the identity to which that file is
sealed (`credentials`), over Arrow Flight; or the driver puts both into a `storage` (`placing`). `fetching` is the
executors' side. Everything leaving is sealed, except the content of plain scopes.

Imports `errors`, `options`, `secrets` and `spool`; nothing is imported here, so that jobs without it need no Flight.
"""
