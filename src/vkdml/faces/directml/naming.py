"""Names that callers give to objects, for errors and for repr: DirectML's IDMLObject."""

from __future__ import annotations

from dataclasses import replace

from ...errors import InvalidArgumentError
from ...operators.checks import CheckedOperator


class Named:
    """An object that may have a name."""

    _name = ""

    @property
    def name(self) -> str:
        """The name that set_name gave it; at first empty."""
        return self._name

    def set_name(self, name: str) -> None:
        """Name it (IDMLObject::SetName). Raises InvalidArgumentError for what is no string."""
        if not isinstance(name, str):
            raise InvalidArgumentError("set_name", "name", type(name).__name__, "str")
        self._name = name

    @property
    def _facts(self) -> str:
        """Text that repr shows beside the class and the name."""
        return ""

    def __repr__(self) -> str:
        facts = (type(self).__name__, repr(self._name) if self._name else "", self._facts)
        return f"<{' '.join(filter(None, facts))}>"


class NamedOperator(Named):
    """An object whose errors begin with the name too. problem: the checked descriptor."""

    problem: CheckedOperator

    @property
    def _facts(self) -> str:
        return f"of {_structure(self.problem)}"

    def set_name(self, name: str) -> None:
        """Name it (IDMLObject::SetName): its errors tell the name. Raises InvalidArgumentError for what is no string."""
        super().set_name(name)
        structure = _structure(self.problem)
        self.problem = replace(self.problem, operator=f"{structure} {name!r}" if name else structure)


def _structure(problem: CheckedOperator) -> str:
    """The structure, without an operator's name."""
    return problem.operator.split(" ")[0]
