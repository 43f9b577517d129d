"""Devices and processes of one host: which there are, who may use them, how they fare, and what must end.

Knows NVML, kernel locks and process trees; knows neither Ray, HTTP nor what a campaign is."""
