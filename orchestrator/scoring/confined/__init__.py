"""The inside of the sandbox: run by a bare interpreter, standard library only, never imported by the rest."""
