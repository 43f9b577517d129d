"""The published data sets, one reader each: from a file in its own format to cases.

A reader knows one format; selecting and freezing are done above it."""
