"""What is settled before a lease: hashes, prompts as token ids, budgets, schedules that exist and are built.

Reads files and asks the kernels' own listing; starts no server and holds no device."""
