"""Does the method keep its promises? Campaigns with a known truth, judged by the code that judges real ones.

Knows the rules (`judging`), and nothing of stores, servers or figures that were measured.
"""
