"""Native libraries: what one is built from, by which compiler, for which machine, and how it is loaded.

Knows ctypes and files; knows no operator."""
