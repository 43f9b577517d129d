"""Scorers: functions from a case and an answer to a verdict. Pure; running code is somebody else's business."""
