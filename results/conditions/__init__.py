"""Under what a campaign was measured: host, devices, energy, servers, neighbours, and what its schedules did.

Knows the store; knows no figure that it stands beside, and no layout."""
