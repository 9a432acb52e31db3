"""Ready-made queries over the streams, and the command that runs them.

Imports the public surface of the package.
"""
