"""The faces of this machine and of this program on it: doctor, lease, init, completion."""
