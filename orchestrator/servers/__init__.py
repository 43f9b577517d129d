"""The servers that can be measured: how each is started, asked and told apart.

Adapters know their server's HTTP; nothing here takes a time."""
