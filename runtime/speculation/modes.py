"""How an answer can be drafted, by name. Loads no tensor library: routes and command lines ask it, too.

`dflash`: by the drafter; `lookup`: by it and by what followed in the request's own history; `none`: not.
"""

MODES = ("dflash", "lookup", "none")
