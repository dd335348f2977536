"""Answers from a real child process, which keeps to its five lines of contract or does not."""

import json
import logging
import re
import shlex
import sys
import tracemalloc
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from sapo_node.contributors import program as module
from sapo_node.contributors.program import program
from sapo_node.groups.prompt import SYSTEM, Prompt
from sapo_node.processes.child import LINES
from sapo_node.training.rollout import AnswerFailed, TaskSkipped
from sapo_protocol import LocalError

LOOP = "import json, os, sys, time\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
ECHO = "    print(json.dumps([asked['prompt']]), flush=True)\n"


@pytest.fixture
def running(tmp_path):
    """`running(lines)` is a program whose loop over the questions has these lines."""

    @asynccontextmanager
    async def start(lines, *, max_bytes=1000):
        script = tmp_path / "solver.py"
        script.write_text(LOOP + lines)
        async with program(shlex.join([sys.executable, "-I", "-S", str(script)]), max_bytes=max_bytes) as answerer:
            yield answerer

    return start


async def ask(answerer, *prompts, completions=4):
    return await answerer.generate(
        [Prompt(each) for each in prompts or ["What?"]], completions=completions, max_tokens=9, seed=1
    )


async def failure(answerer):
    """The line with which it fails, whether the node then stops or asks again."""
    with pytest.raises(LocalError) as caught:
        await ask(answerer)
    (line,) = str(caught.value).splitlines()
    return line


ONCE = "    if asked['prompt'] == 'first':\n        print('[\"a\"]', flush=True)\n        continue\n"
"""Lines of a program that answers the prompt `first`."""


async def test_a_question_is_one_line_and_the_answers_are_one_line(running):
    async with running("    print(json.dumps([json.dumps(asked)] * 2), flush=True)\n") as answerer:
        ((first, *_),) = await ask(answerer, "two\nlines")
    assert json.loads(first.text) == {"prompt": "two\nlines", "system": SYSTEM, "completions": 4}
    assert first.finish == "stop"


async def test_one_process_answers_all_questions_in_their_order(running):
    async with running("    print(json.dumps([asked['prompt'], str(os.getpid())]), flush=True)\n") as answerer:
        groups = [*await ask(answerer, "one", "two"), *await ask(answerer, "three")]
    assert [group[0].text for group in groups] == ["one", "two", "three"]
    assert len({group[1].text for group in groups}) == 1


async def test_answers_that_are_not_given_are_empty_and_marked(running):
    async with running(ECHO) as answerer:
        (group,) = await ask(answerer)
    assert [(each.text, each.finish) for each in group] == [("What?", "stop")] + [("", "length")] * 3


async def test_an_answer_over_the_swarms_limit_is_cut_and_marked(running):
    async with running(ECHO, max_bytes=3) as answerer:
        ((cut, *_),) = await ask(answerer, "What?")
    assert (cut.text, cut.finish) == ("Wha", "length")


@pytest.mark.parametrize(
    "answer", ["garbage", "", '{"a": 1}', '"text"', "[1]", "[null]", '["a", "a", "a", "a", "a"]', "[" * 9999]
)
async def test_a_line_that_is_no_list_of_at_most_g_texts_costs_the_program_its_current(running, answer):
    async with running(f"    print({answer!r}, flush=True)\n") as answerer:
        assert "not a JSON list of at most 4 texts" in await failure(answerer)
        assert answerer._current is None


async def test_a_program_that_dies_is_told_with_its_last_words_and_started_again(running, tmp_path):
    mark = tmp_path / "mark"
    dies_once = (
        f"    if not os.path.exists({str(mark)!r}):\n        open({str(mark)!r}, 'w')\n        sys.exit('no licence')\n"
    )
    async with running(ONCE + dies_once + ECHO) as answerer:
        await ask(answerer, "first")
        with pytest.raises(AnswerFailed, match=r"^the program ended with status 1: no licence$"):
            await ask(answerer)
        ((answer, *_),) = await ask(answerer)
    assert answer.text == "What?"


async def test_what_a_program_wrote_since_its_last_answer_is_told_also_without_a_line_break(running):
    dies = "    sys.stderr.write('loading\\nno licence'); sys.stderr.flush(); os._exit(3)\n"
    async with running("    print('started', file=sys.stderr, flush=True)\n" + ONCE + dies) as answerer:
        await ask(answerer, "first")
        # The line before the answer may be read after the answer, for they come by two pipes.
        assert re.search(r"status 3: (started \| ){1,2}loading \| no licence$", await failure(answerer))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("{python} nosuch.py", "status 2: .*can't open file '.*nosuch.py'"),
        ("{python} -c 'import nosuch'", "status 1: .*ModuleNotFoundError: No module named 'nosuch'"),
        ("true", "status 0; it never answered"),
        ("sh -c 'exit 7'", "status 7; it never answered"),
        ("./not_a_program", "Exec format error"),
        ("echo Loading the model", "the program answered 'Loading the model', not a JSON list"),
        ("sh -c 'echo GPU lost >&2; exec cat'", "not a JSON list"),
    ],
)
async def test_a_program_that_fails_before_its_first_answer_ends_the_node_with_its_own_words(
    command, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "not_a_program").write_bytes(b"\x00\x01")
    (tmp_path / "not_a_program").chmod(0o755)
    async with program(command.format(python=sys.executable), max_bytes=99) as answerer:
        with pytest.raises(LocalError, match=words) as caught:
            await ask(answerer)
    assert type(caught.value) is LocalError
    assert str(caught.value).endswith("; it never answered a prompt, so the node stops")


async def test_a_program_that_is_silent_for_too_long_before_its_first_answer_ends_the_node(running, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    async with running("    time.sleep(60)\n") as answerer:
        assert "did not answer within 0.5 s and is ended; it never answered" in await failure(answerer)


async def test_a_round_of_which_the_program_skips_all_prompts_is_skipped(running):
    skips = "    print('[]' if asked['prompt'] != 'first' else '[\"a\"]', flush=True)\n"
    async with running(skips) as answerer:
        with pytest.raises(TaskSkipped, match="skipped all prompts"):
            await ask(answerer, "one", "two")
        assert len(await ask(answerer, "one", "first")) == 2


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(running, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
    pids = tmp_path / "pids"
    hangs = (
        "    import subprocess\n"
        "    other = subprocess.Popen(['sleep', '60'])\n"
        f"    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{other.pid}}')\n"
        "    time.sleep(60)\n"
    )
    async with running(hangs) as answerer:
        assert "within 1 s" in await failure(answerer)
        with trio.fail_after(10):
            while any(is_running(int(pid)) for pid in pids.read_text().split()):  # noqa: ASYNC110
                await trio.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_a_line_without_end_is_given_up(running, monkeypatch):
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 10_000)
    async with running("    print('x' * 200_000, flush=True)\n") as answerer:
        assert "more than 10000 bytes" in await failure(answerer)


async def test_more_lines_than_questions_are_noticed_before_they_answer_the_next(running):
    async with running('    sys.stdout.write(\'["a"]\\n["b"]\\n\')\n    sys.stdout.flush()\n') as answerer:
        await ask(answerer)
        assert "more than one line" in await failure(answerer)
        ((answer, *_),) = await ask(answerer)
    assert answer.text == "a"


async def test_a_line_that_comes_after_the_answer_does_not_answer_the_next_prompt(running, tmp_path):
    late = f"    time.sleep(0.1)\n    print('[]', flush=True)\n    open({str(tmp_path / 'late')!r}, 'w').close()\n"
    async with running(ECHO + late) as answerer:
        await ask(answerer, "first")
        with trio.fail_after(10):
            while not (tmp_path / "late").exists():  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert "more than one line" in await failure(answerer)
        ((answer, *_),) = await ask(answerer, "third")
    assert answer.text == "third"


async def test_a_program_that_ended_between_two_prompts_is_told_by_its_status(running):
    async with running(ECHO + "    sys.exit(3)\n") as answerer:
        await ask(answerer)
        await trio.sleep(0.3)
        assert "the program ended with status 3" in await failure(answerer)


async def test_a_cancelled_question_is_not_answered_late(running):
    slow_once = "    if asked['prompt'] == 'slow':\n        time.sleep(60)\n"
    async with running(slow_once + ECHO) as answerer:
        with trio.move_on_after(0.5):
            await ask(answerer, "slow")
        ((answer, *_),) = await ask(answerer, "quick")
    assert answer.text == "quick"


async def test_what_it_says_on_stderr_goes_to_the_log_without_control_characters(running, caplog):
    caplog.set_level(logging.INFO, logger="sapo.program")
    async with running("    print('\\x1b[2Jloading', file=sys.stderr, flush=True)\n" + ECHO) as answerer:
        await ask(answerer)
        with trio.fail_after(10):
            while not caplog.messages:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert caplog.messages == [r"\x1b[2Jloading"]


async def test_the_nodes_own_secrets_are_not_handed_to_the_program(running, monkeypatch):
    monkeypatch.setenv("SAPO_NODE_API_KEY", "secret")
    monkeypatch.setenv("SOLVER_OPTION", "kept")
    names = "[name for name in os.environ if name.startswith(('SAPO_NODE_', 'SOLVER_'))]"
    async with running(f"    print(json.dumps({names}), flush=True)\n") as answerer:
        (group,) = await ask(answerer)
    assert [each.text for each in group if each.text] == ["SOLVER_OPTION"]


async def test_the_program_ends_with_the_node_and_may_do_so_in_order(running, tmp_path):
    mark = tmp_path / "mark"
    # It may see the end of its input before the signal.
    tidy = "    import atexit, signal\n    signal.signal(signal.SIGTERM, lambda *_: sys.exit())\n"
    tidy += f"    atexit.register(open, {str(mark)!r}, 'w')\n"
    async with running(tidy + ECHO) as answerer:
        await ask(answerer)
    assert mark.exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "cannot be found"),
        ("there-is-no-such-program --flag", "cannot be found"),
        ("/nonexistent/solver", "cannot be found"),
        ("'unclosed", "is not a command line"),
        ("./solver.py --fast", r"is not executable; give what runs it, as in \"python3 solver.py\""),
        ("./folder", "is a folder"),
    ],
)
async def test_a_command_that_cannot_be_run_is_refused_at_the_start(command, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "solver.py").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(LocalError, match=f"--program .*{words}"):
        async with program(command, max_bytes=9):
            pass


async def test_of_a_flood_on_stderr_the_node_logs_some_lines_with_the_last_one(running, caplog):
    caplog.set_level(logging.INFO, "sapo.program")
    flood = "    sys.stderr.write('x\\n' * 5000 + 'last\\n'); sys.stderr.flush()\n"
    async with running(flood + ECHO) as answerer:
        await ask(answerer)
        with trio.fail_after(10):
            while "last" not in caplog.messages:  # noqa: ASYNC110 - a log line sets no trio.Event
                await trio.sleep(0.01)
    assert len(caplog.messages) <= 10 * (LINES + 1)


def test_a_long_line_of_something_else_is_not_built_in_memory():
    line = b"[" + b"[]," * 100_000 + b"[]]"
    tracemalloc.start()
    with pytest.raises(AnswerFailed):
        module._texts(line, 4)
    assert tracemalloc.get_traced_memory()[1] < len(line)
    tracemalloc.stop()
