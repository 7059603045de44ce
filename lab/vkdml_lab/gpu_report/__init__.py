"""One folder of all that a machine with a GPU can tell about vkdml: what is right, how fast it is, and what was expected."""
