"""Alembic's entry: runs on the connection, and inside the transaction, of `results.migrate`."""

from alembic import context

from results.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
