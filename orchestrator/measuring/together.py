"""Whether a startup's chunks arrived together more often than this host's client alone explains. Pure.

Calibration says how often the client reads chunks together that were sent apart. What measured requests have beyond it
was held back by the server or by what stands before it: then times of the client's clock tell batches and no rounds.
"""

from __future__ import annotations

from collections.abc import Iterable

from campaigns.plan import Phase
from campaigns.reasons import Reason
from campaigns.records import Calibration, Request

FLAGGED = 0.05  # beyond calibration's share: named in the report
MOST = 0.25  # beyond calibration's share: client-clock figures of the startup do not count
_FEW_CHUNKS = 64


class Together:
    """Counts over the measured requests of one server life whose times the client alone tells."""

    def __init__(self) -> None:
        self._num_chunks = self._num_together = 0

    def add(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.phase is Phase.MEASURE and request.engine_decode_ns is None:
                seen = [row.coalesced for row in request.rounds if row.client_ns is not None]
                self._num_chunks += len(seen)
                self._num_together += sum(seen)

    def finding(self, calibration: Calibration | None) -> tuple[Reason, str] | None:
        """Why the startup is flagged or does not count; nothing without a calibration, or of few chunks."""
        known = None if calibration is None else calibration.coalesced_share
        if known is None or self._num_chunks < _FEW_CHUNKS:
            return None
        share = self._num_together / self._num_chunks
        told = f"{share:.1%} of {self._num_chunks} chunks arrived with another, where calibration read {known:.1%} so"
        if share > known + MOST:
            return Reason.STARTUP_COALESCED, (
                f"{told}: the client's clock saw batches (TCP_NODELAY, a flush for each event, no proxy that buffers)"
            )
        return (Reason.COALESCED_ABOVE_CALIBRATION, told) if share > known + FLAGGED else None
