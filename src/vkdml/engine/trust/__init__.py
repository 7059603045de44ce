"""Whether a device computes right, and which plan is the fastest: tried out."""
