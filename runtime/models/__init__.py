"""The target, the drafter, and how their weights are read, made or shared among ranks.

Knows tensors and operators; knows no sampling, no request and no text.
"""
