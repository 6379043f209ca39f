"""A backend in C, built here: it is judged over a pipe and by vectors, and its slips are found both ways."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.oracle.cli.running import gmc, read_json, run_well

from guarded_moments.oracle.conformance import Adapted, BackendError, NonConformance, Trial
from guarded_moments.oracle.conformance.encode import nearest_in_the_logarithm
from guarded_moments.oracle.conformance.pipe import PipeBackend
from guarded_moments.oracle.conformance.vectors import KINDS, check, read_vectors, write_vectors
from guarded_moments.oracle.conformance.vectors.generate import generate, reference_trial
from guarded_moments.oracle.conformance.vectors.group import FLAGS
from guarded_moments.oracle.conformance.vectors.schemas import of_answers, of_vectors

SOURCE = Path(__file__).parents[3] / "examples" / "c_backend" / "backend.c"
OP_MODEL = "torch-2.13-cpu-avx2/fused"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def built(folder: Path, *changes: tuple[str, str]) -> Path:
    """The example, with a change or without."""
    text = SOURCE.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    source, program = folder / "backend.c", folder / "backend"
    source.write_text(text, encoding="utf-8")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = ["cc", "-O2", "-ffp-contract=off", *warnings, "-o", str(program), str(source), "-lm"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder of vectors."""
    folder = tmp_path_factory.mktemp("vectors") / "made"
    trial = reference_trial(1, (OP_MODEL, "torch-2.14-cuda/single"))
    groups = generate(trial, 8)
    write_vectors(folder, groups, groups)
    return folder


def answered(program: Path, vectors: Path) -> Path:
    """What the program writes for the requests."""
    answers = program.parent / "answers.txt"
    with (vectors / "requests.txt").open() as requests, answers.open("w") as out:
        subprocess.run([str(program)], stdin=requests, stdout=out, check=True, timeout=60)
    return answers


@needs_cc
def test_the_example_passes_over_a_pipe(program: Path) -> None:
    ran = run_well(
        "pipe",
        "--op-model",
        OP_MODEL,
        "--only",
        "DEC",
        "--only",
        "GRD-2",
        "--only",
        "OPS-2",
        "--only",
        "RAT",
        str(program),
    )
    said = dict(re.findall(r"^(\S+) +(\w.*)$", ran.out, re.MULTILINE))
    ratio = {f"RAT-{i}": "holds" for i in range(1, 6)}
    assert said == {"OPS-2": "holds", **{f"DEC-{i}": "holds" for i in range(1, 5)}, "GRD-2": "holds", **ratio}


@needs_cc
def test_what_it_does_not_do_is_not_claimed(program: Path) -> None:
    ran = run_well("pipe", "--only", "EXA-1", "--only", "ENC-6", str(program))
    assert "EXA-1   not claimed: the backend has no compress and no recover" in ran.out
    assert "ENC-6   not claimed: the backend has no round_trip" in ran.out


@needs_cc
def test_an_op_model_that_it_does_not_claim_is_not_judged(program: Path) -> None:
    ran = run_well("pipe", "--op-model", "torch-2.13-cpu-avx2/single", "--only", "OPS-2", str(program))
    assert ran.out.startswith("OPS-2   not judged: the backend claims none of the op models asked for")


SLIPS = (
    ("+ 0.5L", "+ 0.4999999L", "ENC-1", "encode"),
    ("mc & 0x80 && mc != M_ESCAPE ? -m : m", "mc & 0x80 ? -m : m", "DEC-2", "decode"),
    ("* (long double)grid.step) / 2)", "* (long double)grid.step) / 2) * (1 + 0x1p-23f)", "RAT-1", "decode_ratio"),
    ("rint(m / (", "round(m / (", "RAT-2", "encode_ratio"),
    ("fmaf(c * g, g, v * beta2)", "v * beta2 + c * g * g", "OPS-1", "first_update"),
    ("total * (1 + 1e-12)", "total * 0.25", "GRD-5", "guard"),
)


@needs_cc
@pytest.mark.parametrize(("old", "new", "requirement", "kind"), SLIPS, ids=[slip[2] for slip in SLIPS])
def test_a_slip_is_found_over_the_pipe_and_by_vectors(
    old: str, new: str, requirement: str, kind: str, tmp_path: Path, vectors: Path
) -> None:
    wrong = built(tmp_path, (old, new))
    ran = gmc("pipe", "--op-model", OP_MODEL, "--only", requirement, str(wrong))
    assert ran.status == 1
    assert ran.out.startswith(f"{requirement}   fails\n"), ran.out

    judged = gmc("vectors", "check", str(vectors), str(answered(wrong, vectors)))
    assert judged.status == 1
    assert re.search(rf"^{kind} \S+, vector \d+: .*, expected ", judged.out, re.MULTILINE), judged.out


@needs_cc
def test_the_example_passes_by_vectors(program: Path, vectors: Path) -> None:
    judged = run_well("vectors", "check", str(vectors), str(answered(program, vectors)))
    assert re.fullmatch(r"[\d,]+ right, 0 wrong, 0 not answered\n", judged.out), judged.out


def test_the_command_writes_the_folder_once(tmp_path: Path, budget: int) -> None:
    if budget == 1:
        pytest.skip("takes half a minute; --oracle runs it")
    made = run_well("vectors", "generate", tmp_path / "v", "--count", 2, "--bulk", 2, "--op-model", OP_MODEL)
    assert re.match(r"[\d,]+ vectors in \d+ groups; 15 files in ", made.out)
    again = gmc("vectors", "generate", tmp_path / "v")
    assert (again.status, again.err) == (2, f"gmc: {tmp_path / 'v'}: exists and is not an empty folder\n")


def validated(instance: Any, schema: dict[str, Any], where: str = "") -> None:  # noqa: ANN401 - JSON, and a schema's few words
    """Assert that a value is of a schema; of the words that the schemas here use, and no other."""
    known = {"$schema", "title", "type", "properties", "required", "additionalProperties", "items", "minItems"}
    assert schema.keys() <= known | {"enum", "const", "pattern", "minimum", "description"}, schema.keys()
    types = {"object": dict, "array": list, "string": str, "integer": int}
    if "type" in schema:
        assert isinstance(instance, types[schema["type"]]), where
    if "const" in schema:
        assert instance == schema["const"], where
    if "enum" in schema:
        assert instance in schema["enum"], where
    if "pattern" in schema:
        assert re.search(schema["pattern"], instance), where
    if "minItems" in schema:
        assert len(instance) >= schema["minItems"], where
    if isinstance(instance, dict):
        assert set(schema.get("required", ())) <= instance.keys(), where
        for key, value in instance.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            assert inner is not False, f"{where}.{key}"
            validated(value, inner, f"{where}.{key}")
    if isinstance(instance, list) and "items" in schema:
        for index, value in enumerate(instance):
            validated(value, schema["items"], f"{where}[{index}]")


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_of_its_schema_and_explains_its_flags(kind: str, vectors: Path) -> None:
    content = read_json(vectors / f"{kind}.json")
    schema = read_json(vectors / content["$schema"])
    assert schema == of_vectors(kind)
    validated(content, schema)
    used = {flag for group in content["groups"] for vector in group["vectors"] for flag in vector["flags"]}
    assert set(content["flags"]) == used <= set(FLAGS)
    with pytest.raises(AssertionError):
        validated({**content, "kind": "other"}, schema)


def answers_of_the_reference(vectors: Path, *, bulk: bool = False) -> dict[str, dict[str, Any]]:
    """The expected answers as answers: the right ones."""
    return {
        f"{group.kind}/{group.name}": {"group": group, "columns": group.answers}
        for group in read_vectors(vectors, bulk=bulk)
    }


def test_answers_as_json_and_as_safetensors(vectors: Path, tmp_path: Path) -> None:
    content = {kind: read_json(vectors / f"{kind}.json") for kind in KINDS}
    answers: dict[str, Any] = {"version": 1}
    for kind, file in content.items():
        answers[kind] = {group["name"]: [vector["expected"] for vector in group["vectors"]] for group in file["groups"]}
    validated(answers, of_answers())
    (tmp_path / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    assert "0 wrong, 0 not answered" in run_well("vectors", "check", vectors, tmp_path / "answers.json").out

    tensors: dict[str, torch.Tensor] = {}
    for name, entry in answers_of_the_reference(vectors, bulk=True).items():
        tensors |= {f"{name}/{column}": value.clone() for column, value in entry["columns"].items()}
    save_file(tensors, tmp_path / "answers.safetensors")
    assert "0 wrong, 0 not answered" in run_well("vectors", "check", vectors, tmp_path / "answers.safetensors").out

    del answers["guard"]
    answers["decode"]["grids-0"][5]["v"] = "3f800000"
    (tmp_path / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    ran = gmc("vectors", "check", vectors, tmp_path / "answers.json")
    assert ran.status == 1
    assert "decode grids-0, vector 5: " in ran.out
    assert re.search(r" 1 wrong, [1-9][\d,]* not answered", ran.out)


def test_a_guard_may_reject_what_it_could_accept(vectors: Path) -> None:
    groups = [group for group in read_vectors(vectors) if group.kind == "guard"]
    assert all(0 < int(group.answers["accept"].sum()) < group.count for group in groups)
    nothing = {(group.kind, group.name): {"accept": torch.zeros(group.count, dtype=torch.int8)} for group in groups}
    assert check(groups, nothing).wrong == []
    everything = {(group.kind, group.name): {"accept": torch.ones(group.count, dtype=torch.int8)} for group in groups}
    assert len(check(groups, everything).wrong) > 0


BAD = (
    ("answers.txt", "operations decode\n\n00 00\n", "line 3 is '00 00'|ends within the answers to decode"),
    ("answers.txt", "", "ends within the answers"),
    ("answers.json", "[]", "is no answers.json"),
    ("answers.json", '{"decode": {"grids-0": []}}', "0 answers to decode grids-0, which has 256 vectors"),
    ("answers.safetensors", "nonsense", "is no safetensors file"),
)


@pytest.mark.parametrize(("name", "content", "said"), BAD)
def test_what_is_no_answer_is_refused_in_one_line(
    name: str, content: str, said: str, vectors: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    ran = gmc("vectors", "check", vectors, tmp_path / name)
    assert ran.status == 2, ran
    assert ran.err.count("\n") == 1
    assert re.search(said, ran.err), ran.err


def program_of(folder: Path, text: str) -> list[str]:
    """A program in Python."""
    (folder / "program.py").write_text(text, encoding="utf-8")
    return [sys.executable, str(folder / "program.py")]


HELLO = "import sys, time\nsys.stdin.readline()\nprint('operations encode\\n', flush=True)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ended with status 0"),
        ("raise SystemExit(3)", "ended with status 3"),
        ("print('hi\\n')", "answered hello with {'hi': \\[\\]}, expected a line 'operations'"),
        ("print('operations fly\\n')", "expected a line 'operations' and some of encode, decode"),
        ("import time; time.sleep(60)", "no line for 1 seconds"),
    ],
)
def test_a_program_that_does_not_answer_hello_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=said):
        PipeBackend(program_of(tmp_path, text), timeout=1.0 if "sleep" in text else 30.0)


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("", "the program answered too little to encode\nsaid  .*ended with status 0"),
        ("time.sleep(60)", "answered too little to encode\nsaid  .*no line for 3 seconds"),
        ("[print('zz 00', flush=True) for line in sys.stdin]", "answered 'zz 00', expected 2 times 2 hexadecimal"),
        ("[print('00', flush=True) for line in sys.stdin]", "answered '00', expected 2 times 2 hexadecimal digits"),
    ],
)
def test_a_program_that_fails_later_is_a_finding(then: str, said: str, tmp_path: Path) -> None:
    backend = PipeBackend(program_of(tmp_path, HELLO + then), timeout=3.0)
    try:
        with pytest.raises(NonConformance, match=said):
            nearest_in_the_logarithm(Trial(Adapted(backend)))
    finally:
        backend.close()


def test_a_program_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = gmc("pipe", str(tmp_path / "absent"))
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "cannot be started: No such file or directory" in ran.err
