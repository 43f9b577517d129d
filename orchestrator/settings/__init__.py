"""From YAML and the words of a command line to a checked, typed configuration and its frozen plan.

Knows the keys and what each may hold; knows no device, no server and no file but those below conf/."""
