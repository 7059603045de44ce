"""The soak: random calls of all faces for an hour, right, broken and with a failing driver, and a check for leaks."""
