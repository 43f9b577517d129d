"""One request at a time: capacity, prefill, rounds of draft and verify, captured graphs.

Knows models and memory; knows no text and no HTTP."""
