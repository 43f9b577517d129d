"""One frozen corpus from many published formats: readers, selection, manifest.

Knows files and cases; knows neither servers nor how an answer is judged.
"""
