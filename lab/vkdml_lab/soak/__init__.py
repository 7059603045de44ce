"""The soak: random calls of all faces (ways to call vkdml) for an hour: right, broken, or with a failing driver."""
