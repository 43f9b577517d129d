"""The DFlash2 server. Importing this package loads nothing heavy."""
