"""`vkdml radeon`, also where vkdml's own command does not know the laboratory."""

import argparse

from vkdml_lab.radeon import command

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="vkdml radeon", description=command.__doc__)
    command.add(parser)
    raise SystemExit(command.run(parser.parse_args()))
