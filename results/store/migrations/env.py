"""Alembic's entry: runs on the connection, and inside the transaction, of `results.store.migrate`."""

from alembic import context

from results.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
