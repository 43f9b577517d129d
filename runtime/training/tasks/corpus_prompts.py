"""Which prompts belong to the embedded corpus: no exercise that is trained on or measured may repeat one.

Kept as digests of first lines (twelve digits of SHA-256), because the runtime does not know the campaigns' files. A
test holds the list to those files.
"""

from __future__ import annotations

import hashlib

_DIGITS = 12
_LIST = """
    00721b6e7582 03167f911014 04ebc255f14b 06642db4750c 070b85d61871 09be83aa14f9 0c9f27b0062f 0d8ab2778d10
    0f3815482761 0fe920372790 105e6cd90993 1281858f4350 16accfe3a4b6 172da92ce6fe 17407ef8ca39 18a35e187137
    199c16b885cb 1aa7b84c884d 1b8a0990202f 1c639b278f74 1d16e5a8562a 1f23b8240472 239475f9c46e 2b0b019e3098
    2b983fe598ca 2c33a553b173 2e05b8c4b37a 2ed2837cbcd2 2ffd0dc74fe4 3045f019f16a 3057f7eda4fd 321acddf16d7
    32559e72d071 333adcf1b614 336e63ca85db 342ae6bf1569 34fa8f163c11 369d588ff414 37604e38960a 381add58eaab
    39eaa19ae819 3b38d7b315a5 3d6902415c81 3d6ac955c491 3ebe223f0637 3f7069224cd5 3fb4eff2d629 438afe94253f
    43b2361bb854 44a6e40a282b 46dc57d0ea62 479290e64906 4a58b464d333 4aedefde62a8 4cac8b0e3d5b 4fd26a389e89
    50d894f585d1 51a9fd0649ba 52135093e6fe 5217d5503917 544e3ec612db 548de789a4a6 55b958a75a3b 560f974c73cc
    5e5566f3afcb 6278cc82645a 6422c6496244 65a845feb8bb 67832907272f 6846b52203a4 689b4e46fc4c 690a66209940
    7065fe37babe 70838f78afda 7202ddd50943 728f2baf713f 75bafa06ce0d 7676bf6996da 776caf1b26fd 79dc028f0d87
    7ab29edc7f48 7e2c8380731f 7f7396db33a4 7fac8d38413f 7fca2d540af9 82949e96ebfe 85d43fedc19f 874c2591931a
    89cc9299d9e5 8d08ba896834 95765857abc8 993def3820ec 9a89f6f76ed7 9b684febd964 a090603fd0e1 a0f367f1be49
    a3a0d75e3c1a a59ebb96bde1 a5c336dc7eeb a63661702748 a9bd1a32c2ab ac0034dc7ec7 ac828e3100b9 b2e4bf02df96
    b550d849adab b7cabd71a7c4 b89655b3eda9 b966c0e39324 ba08ea224413 ba0a045e3c57 bb7d9e5096d8 bcda7e2f41d0
    befed5425a52 c30791e0913e c366bf1371c1 c56d7af1d2db c5b9562a263f c8cdb79bab4a cb844bb6a8de cc79aaf1301e
    ccc14f69bbce cd77329995c9 d082dbf800e1 d1d31b30967a d2c6bd2503ea d2e7f78eff49 d38316ef2fcf d44d27ed08e9
    d52a8d7da93f d6d6839e3524 d6eb522bc6c7 d7c6302be6aa d82e538a9d5d da618ff1255b dc9946016d26 dedeea02f4c7
    e5da57ff5fc9 ebb0eea09a32 ec7ad4e64954 edb9147221f6 eeb7b74b52b7 f4492f42248e f5921fb69d5a f7e72d065331
    f9900829307b fa55a9e227a2 fc690a53d2f3 fe4f2820dc92
"""
DIGESTS = frozenset(_LIST.split())


def digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:_DIGITS]


def repeats_corpus(question: str) -> bool:
    """Whether a line of `question` is the first line of a corpus prompt."""
    return any(digest(line) in DIGESTS for line in question.splitlines())
