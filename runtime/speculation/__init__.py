"""The law of speculative decoding: sampling, noise, drafts, lookup, acceptance.

The distribution of the output is the target's, whatever was drafted. Knows logits and
tokens; knows no graph and no HTTP."""
