"""One SQLite file of facts, each written once: tables, migrations, the writer, the reader, their hashes.

Knows no statistics and no report."""
