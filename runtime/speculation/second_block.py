"""When a round verifies a second block of rows, drafted from the request's own history alone.

Where the history matches strongly in `ENTRY_STREAK` rounds running, and from then on at every strong match until
`STICKY` rounds after the last such streak have passed. That depends on the tokens so far, on no draw of the round, so
rejection sampling stays exact. A second block costs rows and no second pass through the weights.
"""

from dataclasses import dataclass

ENTRY_STREAK, STICKY = 2, 3


@dataclass
class SecondBlock:
    """Of one request; told once a round whether the match is strong."""

    streak: int = 0
    left: int = 0  # rounds in which one strong match is enough

    def opens(self, strong: bool) -> bool:
        self.streak = self.streak + 1 if strong else 0
        wide = strong and (self.streak >= ENTRY_STREAK or self.left > 0)
        self.left = STICKY if self.streak >= ENTRY_STREAK else max(self.left - 1, 0)
        return wide
