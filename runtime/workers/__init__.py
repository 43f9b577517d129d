"""The engine in a process of its own: the protocol, its client in the server, its worker beside the device.

Importing the client loads no torch."""
