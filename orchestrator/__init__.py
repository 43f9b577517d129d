"""How it is measured: Ray, GPUs, processes, sockets."""
