"""The DFlash2 server. Knows nothing of campaigns. Importing this package loads nothing heavy."""
