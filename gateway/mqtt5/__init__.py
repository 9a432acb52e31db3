"""MQTT 3.1, 3.1.1 and 5 without I/O: codec and sessions. README.md gives the order in which to read the modules."""
