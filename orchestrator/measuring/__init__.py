"""One request from the wire to a fact: client, exchange, stream, observe; and the calibration of that path.

Knows bytes and stamps; knows no campaign, device or store."""
