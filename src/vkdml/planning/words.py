"""Problems and plans in words, for people to read."""

from __future__ import annotations

from ..operators.problem import Problem
from .plan import Plan


def of_direction(problem: Problem) -> str:
    if problem.directions == 2:
        return "bidirectional"
    return "reverse" if problem.reverse[0] else "forward"


def of_problem(problem: Problem) -> str:
    sizes = f"T {problem.steps}, B {problem.batch}, I {problem.input_size}, H {problem.hidden}"
    return f"{problem.cell.name}: {sizes}, {problem.element.name}, {of_direction(problem)}"


def of_plan(plan: Plan) -> str:
    """The plan of a recurrent operator on one line."""
    assert plan.tiling
    assert plan.seconds is not None
    loop = plan.tiling.loop
    meeting = f" ({loop.meeting})" if loop.meeting else ""
    kernels = ", ".join(dict.fromkeys(dispatch.kernel for dispatch in plan.execute))
    return (f"{loop.schedule}{meeting}, parts {loop.parts}, rows {loop.rows}, steps of a dispatch {loop.chunk_steps}; "
            f"{len(plan.execute)} dispatches of {kernels} in {plan.submissions} submissions, "
            f"estimated {plan.seconds * 1e3:.3f} ms")
