"""From a body to a frozen order: fields, which of them are known, chats, forms, forced tools.

Knows names and limits; no sockets, no engine."""
