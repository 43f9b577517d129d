"""One server life on one lease, where Ray puts it: the only room that knows Ray.

Joins hosts, servers and measuring in one actor; knows nothing of the store or of statistics."""
