"""After a device is lost a plan is made without it, written, and run; what can't be planned is infeasible."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.errors import DeviceLost, NoPlan
from placewright.evaluate import judge, plan_for
from placewright.execute.replan import run_replanning, without
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import read_plan, write_plan
from placewright.plan import Plan
from placewright.problem import Problem, Wish
from placewright.result import Result

LINK = Link(0.1, 1e12, link_class="same-host")


def pair(*wishes: Wish) -> Problem:
    """a and then b: 1 s each on gpu[0], 2 s on gpu[1], 5 s on cpu."""
    graph = OperatorGraph([Operator("a"), Operator("b")], [Tensor("x", 0, (1,), 8)], name="pair")
    cluster = Cluster([Device("gpu[0]"), Device("gpu[1]"), Device("cpu")], [LINK])
    return Problem(graph, cluster, [[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]], wishes=wishes)


class Machine:
    """Runs plans; devices are lost when they are used."""

    def __init__(self, *broken: str) -> None:
        self.broken, self.told = broken, list[str]()
        self.ran: list[tuple[list[int], Path]] = []

    def __call__(self, problem: Problem, plan: Plan, path: Path) -> str:
        self.ran.append((plan.device_of.tolist(), path))
        for i in plan.devices_used:
            name = problem.cluster.devices[i].name
            if name in self.broken:
                raise DeviceLost("it died", device=name)
        return "done"


def begun(problem: Problem, device_of: list[int]) -> Result:
    plan = plan_for(problem, np.array(device_of))
    assert plan is not None
    return Result(plan)


def test_two_devices_are_lost_one_after_the_other(tmp_path: Path) -> None:
    """2 s on gpu[0]; without it 4 s on gpu[1], without both 10 s on cpu; names in brackets are no patterns."""
    problem, machine, output = pair(), Machine("gpu[0]", "gpu[1]"), tmp_path / "new.json"
    ran = run_replanning(
        problem,
        begun(problem, [0, 0]),
        Path("old.json"),
        machine,
        output=output,
        budget_s=5.0,
        tell=machine.told.append,
    )
    assert machine.ran == [([0, 0], Path("old.json")), ([1, 1], output), ([2, 2], output)]
    assert (ran.outcome, ran.path, [e.device for e in ran.lost]) == ("done", output, ["gpu[0]", "gpu[1]"])
    assert ran.result.value_s == 10.0
    written = read_plan(output)
    assert written.plan.device_of.tolist() == [2, 2]
    assert written.problem.allowed.tolist() == [[False, False, True]] * 2
    assert machine.told[0] == "gpu[0] is lost: it died; planning again without it for 5 s"
    assert machine.told[1] == f"the plan without gpu[0] takes 4 s, the one before took 2 s; it is in {output}"


def test_no_device_that_may_run_an_operator_is_left(tmp_path: Path) -> None:
    """b is pinned to the device that is lost: exit code 3, with the reason; nothing is written."""
    problem, machine, output = pair(Wish("b", "gpu[[]0]")), Machine("gpu[0]"), tmp_path / "new.json"
    with pytest.raises(NoPlan, match=r"^without 'gpu\[0\]' there is no plan: .*'b'") as caught:
        run_replanning(
            problem, begun(problem, [1, 0]), Path("old.json"), machine, output=output, budget_s=5.0, tell=print
        )
    assert caught.value.exit_code == 3
    assert not output.exists()


def test_without_replanning_a_lost_device_is_the_end() -> None:
    """The error passes as it is."""
    problem, machine = pair(), Machine("gpu[0]")
    with pytest.raises(DeviceLost, match="it died"):
        run_replanning(
            problem, begun(problem, [0, 0]), Path("old.json"), machine, output=None, budget_s=5.0, tell=print
        )


def test_a_device_is_forbidden_by_its_name() -> None:
    """Other wishes stay, and the problem keeps its name."""
    left = without(pair(Wish("a", "cpu")), "gpu[1]")
    assert left.allowed.tolist() == [[False, False, True], [True, False, True]]
    assert left.name == "pair"


def test_the_command_goes_on_with_a_new_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """run --replan: the report is of the new plan, JSON tells what was lost; without the flag the exit code is 1."""
    from placewright import execute
    from placewright.cli import main
    from placewright.measurement import Measurement

    problem, machine = pair(), Machine("gpu[0]")
    plan = plan_for(problem, np.array([0, 0]))
    assert plan is not None
    write_plan(tmp_path / "plan.json", problem, Result(plan), judge(problem, plan))

    def run(problem: Problem, plan: Plan, **options: object) -> list[Measurement]:
        machine(problem, plan, tmp_path)
        return [Measurement("plan", (4.5,), plan.value_s)]

    monkeypatch.setattr(execute, "run_plan", run)
    command = ["run", str(tmp_path / "plan.json"), "--json"]
    assert _exit_code(main, [*command, "--replan", "--budget", "5s"], monkeypatch) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["lost"] == [{"device": "gpu[0]", "cause": "it died"}]
    assert out["plan"] == str(tmp_path / "plan.replanned.json")
    assert out["measurements"][0]["predicted_s"] == 4.0
    assert _exit_code(main, command, monkeypatch) == 1
    assert capsys.readouterr().err.strip() == "placewright: it died"


def _exit_code(main: object, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["placewright", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()  # type: ignore[operator]
    return int(ended.value.code or 0)
