"""Doing it: what is planned is recorded, and executed on a device."""
