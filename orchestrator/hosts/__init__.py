"""Who uses one host: leases over kernel locks, CPUs, trees of processes and how they end; its devices are a room in it.

Knows neither Ray, HTTP nor what a campaign is."""
