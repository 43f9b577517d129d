"""What the server says over HTTP: routes, fields, answers, refusals.

Knows no tensor: the engine is another process, reached through runtime.workers."""
