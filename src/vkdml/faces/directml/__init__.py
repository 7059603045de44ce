"""DirectML's objects, used in its order: create, compile, initialize, bind, record, execute."""
