"""From stored facts to figures: frames, groups, levels, floors, and everything one report says, computed once.

Knows pandas and the statistics; knows no layout."""
