"""What was measured: the store, frames, reports, history."""
