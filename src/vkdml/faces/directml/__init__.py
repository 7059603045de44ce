"""DirectML's objects, with its life cycle: create, compile, initialize, bind, record, execute."""
