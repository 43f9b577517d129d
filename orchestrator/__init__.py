"""How it is measured: Ray, GPUs, processes, sockets. Knows no tensor."""
