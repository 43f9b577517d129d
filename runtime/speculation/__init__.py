"""The law of speculative decoding: sampling, noise, drafts, lookup, acceptance.

The distribution of the output is the target's, whatever was drafted."""
