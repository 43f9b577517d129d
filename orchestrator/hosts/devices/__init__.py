"""The devices of one host: which there are, what they say of themselves, how they fare while something runs on them.

Knows NVML and /proc; knows no lock, no lease and no campaign."""
