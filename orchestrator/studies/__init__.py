"""Several campaigns that answer one question: a sweep, a race, a bisection, what neighbours do to each other.

Knows campaigns from outside, as `execute` and `resume` take them, and which devices are free; nothing of servers."""
