"""What travels, before anything means something: who may ask, connections, bodies and their memory. Knows no routes."""
