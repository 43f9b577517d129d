"""`campaign score`: recorded answers judged after the measurement, generated code behind walls.

Never runs beside a timing; the rules themselves are campaigns.scorers."""
