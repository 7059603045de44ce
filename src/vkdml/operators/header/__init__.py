"""DirectML.h's structures, enumerations and names."""
