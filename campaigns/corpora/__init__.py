"""One frozen corpus from many published formats: readers, selection, manifest."""
