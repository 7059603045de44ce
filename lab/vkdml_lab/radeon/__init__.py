"""A GPU of AMD's beneath Mesa's driver, in software: it executes the machine code of each submission (README.md)."""
