"""The soak test: an hour of random calls to all faces (interfaces) of vkdml, some with broken arguments or a failing driver."""
