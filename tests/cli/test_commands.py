"""Every command on small inputs: what it prints, what it writes, how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import placewright as pw
from tests.cli.commands import Call, changed, fork, written

RESULT_KEYS = [
    "schema",
    "problem",
    "objective",
    "objective_options",
    "times_source",
    "solver",
    "status",
    "value_s",
    "lower_bound_s",
    "gap",
    "runtime_s",
    "seed",
    "placement",
    "devices",
    "channels",
    "replicas",
    "copies",
    "calls",
    "bounds",
    "alternatives",
    "infeasible",
    "interrupted",
    "rejected_s",
    "rejected",
    "explanation",
]
DEVICE_KEYS = [
    "name",
    "busy_s",
    "memory_bytes",
    "memory_limit_bytes",
    "weight_bytes",
    "kv_cache_bytes",
    "activation_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "saved_bytes",
    "workspace_bytes",
    "operators",
    "sent_bytes",
    "received_bytes",
    "loads",
]


def test_version(placewright: Call) -> None:
    """One line, exit code 0."""
    shown = placewright("--version")
    assert (shown.code, shown.out, shown.err) == (0, f"placewright {pw.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"]])
def test_help(placewright: Call, arguments: list[str]) -> None:
    """Help is asked for: exit code 0, on standard output."""
    shown = placewright(*arguments)
    assert shown.code == 0 and "Usage: placewright" in shown.out and shown.err == ""


def test_without_arguments(placewright: Call) -> None:
    """Help is shown, and the exit code says that nothing was done."""
    shown = placewright()
    assert shown.code == 2 and "compare" in shown.out and shown.err == ""


def test_plan_prints_value_and_proof_and_writes_its_files(
    placewright: Call, problem_file: Path, tmp_path: Path
) -> None:
    """All on the fast device: 1 + 2 + 2 + 1 = 6 ms. The other at c: 1 + 0.011 + 4 + 0.011 + 1 ms is more."""
    paths = [tmp_path / name for name in ("plan.json", "plan.html", "trace.json")]
    shown = placewright(
        "plan", problem_file, "--budget", "5s", "-o", paths[0], "--report", paths[1], "--trace", paths[2]
    )
    assert shown.code == 0
    assert " status       optimal" in shown.out and " value        6 ms" in shown.out
    assert "\x1b" not in shown.out + shown.err
    written_plan = json.loads(paths[0].read_text())
    assert written_plan["schema"] == "placewright/plan/1" and written_plan["value_s"] == pytest.approx(0.006)
    assert paths[1].read_text().lstrip().lower().startswith("<!doctype html>")
    assert json.loads(paths[2].read_text())["traceEvents"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plan.html", "plan.json", "problem.json", "trace.json"]


def test_plan_as_json(placewright: Call, problem_file: Path) -> None:
    """Standard output is one object with the documented keys in their order, whatever libraries would like to say."""
    shown = placewright("plan", problem_file, "--json", "--budget", "5s", "--seed", "7")
    assert shown.code == 0
    assert list(shown.json) == RESULT_KEYS
    assert shown.json["schema"] == "placewright/result/1"
    assert shown.json["status"] == "optimal" and shown.json["seed"] == 7
    assert shown.json["value_s"] == pytest.approx(0.006) and shown.json["lower_bound_s"] == pytest.approx(0.006)
    assert shown.json["placement"] == dict.fromkeys("abcd", "fast")
    assert [list(d) for d in shown.json["devices"]] == [DEVICE_KEYS] * 2
    assert [d["busy_s"] for d in shown.json["devices"]] == pytest.approx([0.006, 0])


def test_plan_obeys_pins_and_forbids(placewright: Call, problem_file: Path) -> None:
    """A pin and a forbid move operators; both are patterns."""
    shown = placewright(
        "plan", problem_file, "--json", "--solver", "heft", "--pin", "[ab]=slow", "--forbid", "d=f*", "--budget", "0"
    )
    assert shown.code == 0
    assert [shown.json["placement"][v] for v in "abd"] == ["slow"] * 3


def test_plan_without_time_gives_what_the_quick_heuristics_find(placewright: Call, problem_file: Path) -> None:
    """``--budget 0`` still finds a plan, and does not claim more than is proved."""
    shown = placewright("plan", problem_file, "--budget", "0", "--json")
    assert shown.code == 0 and shown.json["status"] == "feasible"
    assert shown.json["lower_bound_s"] < shown.json["value_s"]


def test_same_seed_same_plan(placewright: Call, problem_file: Path, tmp_path: Path) -> None:
    """Two runs of one heuristic write the same plan but for its runtime."""
    plans = []
    for name in ("one.json", "two.json"):
        placewright("plan", problem_file, "--solver", "etf", "--budget", "0", "-o", tmp_path / name)
        plans.append({**json.loads((tmp_path / name).read_text()), "runtime_s": 0})
    assert plans[0] == plans[1]


def test_compare_lists_solvers_in_the_order_asked_for(placewright: Call, problem_file: Path) -> None:
    """A row a solver, each with the best bound that any of them proved."""
    shown = placewright("compare", problem_file, "--solvers", "etf, single-device,makespan-cp-sat", "--json")
    assert shown.code == 0 and list(shown.json) == ["results"]
    results = shown.json["results"]
    assert [r["solver"] for r in results] == ["etf", "single-device", "makespan-cp-sat"]
    assert {tuple(r) for r in results} == {tuple(RESULT_KEYS)}
    assert len({r["lower_bound_s"] for r in results}) == 1
    table = placewright("compare", problem_file, "--solvers", "etf", "--budget", "0")
    assert table.code == 0 and " etf" in table.out and "lower bound" in table.out


def test_show(placewright: Call, plan_file: Path, tmp_path: Path) -> None:
    """A plan file alone is enough; its reports can be made again."""
    shown = placewright("show", plan_file, "--report", tmp_path / "r.html", "--trace", tmp_path / "t.json")
    assert shown.code == 0 and " solver       heft" in shown.out and shown.err == ""
    assert (tmp_path / "r.html").exists() and json.loads((tmp_path / "t.json").read_text())


def test_explain_writes_a_page(placewright: Call, plan_file: Path, tmp_path: Path) -> None:
    """Its page has what people ask and what the plan depends on; a folder that is not there is told at once."""
    shown = placewright("explain", plan_file, "--budget", "0", "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert shown.code == 0 and "What people ask</h2>" in page and "What the plan depends on</h2>" in page
    assert placewright("explain", plan_file, "--report", tmp_path / "none" / "r.html").code == 2


def test_evaluate(placewright: Call, problem_file: Path, plan_file: Path) -> None:
    """The judge's value, as text and as JSON; a plan file stands for its problem."""
    shown = placewright("evaluate", problem_file, plan_file)
    assert shown.code == 0 and "verdict    feasible" in shown.out
    shown = placewright("evaluate", plan_file, plan_file, "--json")
    assert list(shown.json) == ["schema", "problem", "value_s", "feasible", "violations", "devices", "channels"]
    assert shown.json["feasible"] is True and shown.json["violations"] == []
    assert list(shown.json["devices"][0]) == DEVICE_KEYS


def test_verify(placewright: Call, problem_file: Path, plan_file: Path) -> None:
    """A sound plan passes; one whose second operator starts before its input is there does not: exit code 3."""
    shown = placewright("verify", problem_file, plan_file)
    assert (shown.code, shown.err) == (0, "") and shown.out.startswith("verified")
    content = json.loads(plan_file.read_text())
    times = content["schedule"]["operators"]
    times["start_s"][1] -= 0.0005
    times["finish_s"][1] -= 0.0005
    broken = written(plan_file.parent, content, "broken.json")
    shown = placewright("verify", problem_file, broken)
    assert shown.code == 3 and "found" in shown.out
    shown = placewright("verify", problem_file, broken, "--json")
    assert shown.code == 3 and list(shown.json) == ["schema", "problem", "legal", "violations"]
    assert shown.json["legal"] is False and any("'b'" in v for v in shown.json["violations"])


def test_convert_copies_a_problem_and_adds_wishes(placewright: Call, problem_file: Path, tmp_path: Path) -> None:
    """The file that is written reads back as the problem with its new wish and contention; nothing goes to stdout."""
    path = tmp_path / "out.json"
    shown = placewright("convert", problem_file, "--pin", "a=slow", "--contention", "port", "-o", path)
    assert (shown.code, shown.out) == (0, "") and "4 operators, 2 devices" in shown.err
    read = pw.read_problem(path)
    assert read.wishes == (pw.Wish("a", "slow"),) and read.objective == pw.Makespan("port")


def test_solvers(placewright: Call) -> None:
    """Each solver and bound with its kind and what it does."""
    kinds = {row["name"]: row["kind"] for row in placewright("solvers", "--json").json["solvers"]}
    assert kinds["heft"] == "heuristic" and kinds["makespan-cp-sat"] == "exact" and kinds["critical-path"] == "bound"
    shown = placewright("solvers")
    assert shown.code == 0 and all(name in shown.out for name in kinds)


def test_doctor(placewright: Call) -> None:
    """Versions of what is installed; exit code 0, also where an extra is absent."""
    shown = placewright("doctor")
    assert shown.code == 0 and "numba" in shown.out and "cores" in shown.out


def test_infeasible_plans_exit_with_3(placewright: Call, tmp_path: Path) -> None:
    """The reason is one line on stderr and a key of the JSON object; no file is written."""
    path = written(tmp_path, changed(lambda c: [d.update(memory_bytes=2**19) for d in c["cluster"]["devices"]]))
    shown = placewright("plan", path, "--json", "-o", tmp_path / "plan.json")
    assert shown.code == 3
    assert all(f"operator '{v}' needs 1 MiB" in shown.line for v in "abcd") and "512 KiB" in shown.line
    assert shown.json["status"] == "infeasible" and shown.json["placement"] is None and shown.json["value_s"] is None
    assert shown.json["infeasible"] == shown.line
    assert not (tmp_path / "plan.json").exists()
    shown = placewright("compare", path, "--budget", "0")
    assert shown.code == 3 and "infeasible" in shown.out and "needs 1 MiB" in shown.line


def test_memory_that_holds_each_but_not_all(placewright: Call, tmp_path: Path) -> None:
    """Four times 1 MiB on two devices of 1.5 MiB: the sum is named, with the largest operators."""
    path = written(tmp_path, changed(lambda c: [d.update(memory_bytes=3 * 2**19) for d in c["cluster"]["devices"]]))
    shown = placewright("plan", path, "--budget", "5s")
    assert shown.code == 3 and shown.out == ""
    assert "need 4 MiB" in shown.line and "have 3 MiB together" in shown.line and "'a' (1 MiB)" in shown.line


def test_no_plan_uses_a_link_that_is_not_there(placewright: Call, tmp_path: Path) -> None:
    """Without links everything stays on one device; where no device runs everything, there is no plan."""
    path = written(tmp_path, changed(lambda c: c["cluster"].update(links=[])))
    shown = placewright("plan", path, "--json", "--budget", "5s")
    assert shown.code == 0 and len(set(shown.json["placement"].values())) == 1
    apart = changed(lambda c: c["cluster"].update(links=[]))
    apart["processing_s"][0][1] = apart["processing_s"][3][0] = None
    shown = placewright("plan", written(tmp_path, apart), "--budget", "5s")
    assert shown.code == 3 and "add a link or allow more devices" in shown.line


def test_contradicting_wishes_are_infeasible(placewright: Call, problem_file: Path) -> None:
    """A pin and a forbid of the same pair leave the operator without a device."""
    shown = placewright("plan", problem_file, "--pin", "a=fast", "--forbid", "a=fast")
    assert shown.code == 3 and shown.line.startswith("operator 'a' may run on no device")


def test_names_from_a_file_can_not_steer_the_terminal(placewright: Call, tmp_path: Path) -> None:
    """Control characters and markup of a hostile file are shown harmlessly, in reports and in complaints."""
    content = fork(name="[/x]\x1b[31m")
    content["cluster"]["devices"][0]["name"] = "[red]\x07"
    path = written(tmp_path, content)
    shown = placewright("plan", path, "--budget", "0")
    assert shown.code == 0 and "[red]?" in shown.out and "[/x]?[31m" in shown.out
    refused = placewright("plan", path, "--pin", "a=\x1b[2J")
    assert refused.code == 2 and not {"\x1b", "\x07"} & set(shown.out + refused.out + refused.err)
