"""Between tokens and text: the tokenizer, a transcript as it grows, tool calls in it, and a step's plain record.

Knows neither HTTP nor tensors."""
