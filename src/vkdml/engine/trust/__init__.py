"""Tests that show whether a device computes correctly, and timings that show which plan is the fastest."""
