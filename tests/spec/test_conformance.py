"""The conformance driver against readers that agree, that differ, and that break the contract in every way."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from conformance.run import (
    MAX_LINE,
    Answer,
    CannotRun,
    Case,
    Fault,
    Implementation,
    Outcome,
    Report,
    Result,
    Wrong,
    load_cases,
    main,
    render,
    run_cases,
)

REQUEST = {"kind": "encoding", "input": {"bytes": "00"}}


def script(body, *, head="import sys, os, json, time", loop="for line in sys.stdin:"):
    """The command of a reader that runs `body` for each request."""
    return [sys.executable, "-c", f"{head}\n{loop}\n    {body}"]


ACCEPTING = script('print(\'{"verdict": "accept"}\', flush=True)')


def case(expect="accept", *, output=None, kind="encoding", rule="ENC-1", name="a", content="00"):
    return Case(f"{kind}/{name}.json", kind, rule, {"bytes": content}, expect, output, "because")


def fault(body, *, time_limit=5.0, **options):
    """What is wrong with a reader that runs `body` for its first request."""
    with Implementation(script(body, **options), time_limit=time_limit) as reader:
        found = reader.ask(REQUEST)
    assert isinstance(found, Fault), found
    return found


def test_a_reader_is_asked_the_kind_and_the_input_and_nothing_else():
    with Implementation(
        script("print(json.dumps({'verdict': 'x', 'output': json.loads(line)}), flush=True)")
    ) as reader:
        assert reader.ask(case("encoding").request) == Answer("x", REQUEST)


def test_a_reader_is_started_once_for_all_its_requests():
    with Implementation(script("print(json.dumps({'verdict': str(os.getpid())}), flush=True)")) as reader:
        assert reader.ask(REQUEST) == reader.ask(REQUEST)


def test_a_request_larger_than_any_pipe_reaches_a_reader_that_takes_its_time():
    large = {"kind": "encoding", "input": {"bytes": "00" * 1_000_000}}
    answering = script("time.sleep(0.2); print(json.dumps({'verdict': str(len(line))}), flush=True)")
    with Implementation(answering) as reader:
        assert reader.ask(large) == Answer(str(len(json.dumps(large)) + 1))


def test_a_note_is_for_people_and_kept():
    with Implementation(script("print(json.dumps({'verdict': 'body', 'note': 'G is 2'}), flush=True)")) as reader:
        assert reader.ask(REQUEST) == Answer("body", None, "G is 2")


def test_a_reader_that_says_nothing_is_silent():
    assert fault("pass", time_limit=0.5) == Fault(Wrong.SILENT, "no answer within 0.5 s")


def test_a_reader_that_does_not_even_listen_to_a_large_request_is_silent():
    command = script("time.sleep(60)", loop="while True:")
    with Implementation(command, time_limit=0.5) as reader:
        assert reader.ask({"kind": "encoding", "input": {"bytes": "00" * 500_000}}).what is Wrong.SILENT


def test_a_reader_that_never_ends_its_line_is_silent():
    assert fault("print('{', end='', flush=True)", time_limit=0.5).what is Wrong.SILENT


def test_a_reader_that_dies_is_told_with_its_exit_status():
    assert fault("sys.exit(7)") == Fault(Wrong.ENDED, "its exit status is 7")


def test_a_reader_that_is_killed_is_told_with_the_signal():
    assert fault("os.kill(os.getpid(), 9)") == Fault(Wrong.ENDED, "its exit status is -9")


def test_a_reader_that_never_reads_and_ends_at_once_has_ended():
    assert fault("break", loop="while True:").what is Wrong.ENDED


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "",
        "[]",
        "{}",
        '"accept"',
        '{"verdict": 1}',
        '{"verdict": "accept", "note": 1}',
        '{"verdict": "accept", "time": 1}',
        '{"verdict": "accept"} {}',
        '{"verdict": "accept", "output": NaN}',
    ],
)
def test_a_line_that_is_not_an_answer_is_told_apart(line):
    assert fault(f"print({line!r}, flush=True)").what is Wrong.NO_ANSWER


def test_a_line_nested_beyond_reason_is_not_an_answer():
    assert fault("print('[' * 100_000, flush=True)").what is Wrong.NO_ANSWER


def test_bytes_that_are_not_utf_8_are_not_an_answer():
    assert fault(r"os.write(1, b'{\"verdict\": \"\xff\"}\n')").what is Wrong.NO_ANSWER


def test_two_lines_for_one_request_are_told_apart():
    assert fault(r"os.write(1, b'{\"verdict\": \"accept\"}\n{}\n')") == Fault(Wrong.SECOND_LINE, r"'{}\n'")


def test_a_second_line_that_comes_late_is_not_taken_for_the_next_answer():
    late = r"os.write(1, b'{\"verdict\": \"accept\"}\n'); time.sleep(0.2); os.write(1, b'{\"verdict\": \"accept\"}\n')"
    with Implementation(script(late)) as reader:
        assert reader.ask(REQUEST) == Answer("accept")
        time.sleep(0.6)
        assert reader.ask(REQUEST).what is Wrong.UNASKED


def test_a_line_without_end_is_cut_off():
    assert fault(f"os.write(1, b' ' * {MAX_LINE + 1})").what is Wrong.LONG_LINE


def test_a_reader_that_failed_is_started_again_for_the_next_request(tmp_path):
    mark = tmp_path / "started"
    first = f"if not os.path.exists({str(mark)!r}): open({str(mark)!r}, 'w'); sys.exit(1)"
    body = "print(json.dumps({'verdict': 'x'}), flush=True)"
    with Implementation(script(body, head=f"import sys, os, json\n{first}")) as reader:
        assert reader.ask(REQUEST).what is Wrong.ENDED
        assert reader.ask(REQUEST) == Answer("x")


def test_what_a_reader_started_ends_with_it():
    child = "import subprocess; child = subprocess.Popen(['sleep', '60'])"
    body = "print(json.dumps({'verdict': str(child.pid)}), flush=True)"
    with Implementation(script(body, head=f"import sys, json; {child}")) as reader:
        pid = int(reader.ask(REQUEST).verdict)
        os.kill(pid, 0)
    deadline = time.monotonic() + 5
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(pid)


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("command", [["/nowhere/reader"], ["/"], [""]])
def test_a_command_that_cannot_be_started_is_one_clear_line(command):
    with Implementation(command) as reader, pytest.raises(CannotRun, match="cannot start the command") as error:
        reader.ask(REQUEST)
    assert len(str(error.value).splitlines()) == 1


def test_a_program_that_answers_nothing_is_given_up_as_no_reader():
    with Implementation(script("sys.exit(3)")) as reader, pytest.raises(CannotRun, match="exit status is 3"):
        run_cases([case()] * 10, reader)


def outcome(expect, answer, output=None):
    return Result(case(expect, output=output), answer).outcome


def test_the_same_verdict_agrees():
    assert outcome("encoding", Answer("encoding")) is Outcome.AGREED


def test_another_layer_differs_although_both_refuse():
    assert outcome("header", Answer("signature")) is Outcome.DIFFERED


def test_an_output_must_be_the_very_same():
    assert outcome("accept", Answer("accept", {"a": [1]}), {"a": [1]}) is Outcome.AGREED
    assert outcome("accept", Answer("accept", {"a": [2]}), {"a": [1]}) is Outcome.DIFFERED
    assert outcome("accept", Answer("accept", {"a": [1], "b": 1}), {"a": [1]}) is Outcome.DIFFERED
    assert outcome("accept", Answer("accept"), {"a": [1]}) is Outcome.DIFFERED


def test_one_is_not_true():
    assert outcome("accept", Answer("accept", {"rewards": [[1]]}), {"rewards": [[True]]}) is Outcome.DIFFERED


def test_a_kind_that_a_reader_does_not_know_is_a_failure_apart():
    result = Result(case(), Answer("unknown kind"))
    assert result.outcome is Outcome.UNKNOWN_KIND
    assert not Report(("reader",), [result]).all_agree


def test_a_kind_that_may_be_left_out_is_told_and_is_no_failure():
    results = [Result(case(kind="mathematics", rule="ROW-8"), Answer("unknown kind")), Result(case(), Answer("accept"))]
    report = Report(("reader",), results)
    assert report.all_agree
    assert list(report.by_rule()) == ["ENC-1"]
    assert render(report).endswith("leaves out, as it may: mathematics (1)")


def test_rules_are_counted_and_in_order():
    results = [Result(case(rule=rule), Answer(verdict)) for rule, verdict in [("ENC-10", "accept"), ("ENC-2", "body")]]
    results.append(Result(case(rule="ENC-10"), Answer("accept")))
    assert list(Report((), results).by_rule().items()) == [("ENC-2", (1, 0)), ("ENC-10", (2, 2))]


def test_the_report_for_scripts_tells_every_disagreement():
    results = [
        Result(case(), Answer("accept")),
        Result(case("body", name="b"), Answer("accept", {"texts": []}, "fine")),
        Result(case(name="c"), Fault(Wrong.ENDED, "its exit status is 1")),
    ]
    assert json.loads(json.dumps(Report(("reader", "-x"), results).as_dict())) == {
        "reader": ["reader", "-x"],
        "totals": {"cases": 3, "agreed": 1, "differed": 1, "unknown_kind": 0, "left_out": 0, "not_answered": 1},
        "rules": {"ENC-1": {"cases": 3, "agreed": 1}},
        "disagreements": [
            {
                "case": "encoding/b.json",
                "kind": "encoding",
                "rule": "ENC-1",
                "outcome": "differed",
                "expected": {"verdict": "body"},
                "got": {"verdict": "accept", "output": {"texts": []}},
                "note": "fine",
            },
            {
                "case": "encoding/c.json",
                "kind": "encoding",
                "rule": "ENC-1",
                "outcome": "not_answered",
                "expected": {"verdict": "accept"},
                "got": None,
                "note": "ended: its exit status is 1",
            },
        ],
    }


def shown(*results):
    """The report for people."""
    return render(Report((), list(results)))


def test_the_report_for_people_names_case_expectation_and_answer():
    text = shown(Result(case("body"), Answer("accept", None, "looks fine")))
    for word in ("encoding/a.json", "body", "accept", "looks fine", "because"):
        assert word in text


def test_the_report_for_people_names_the_values_that_differ_and_no_others():
    text = shown(Result(case(output={"same": 1, "other": "x" * 500}), Answer("accept", {"same": 1, "other": "y"})))
    assert "other: expected" in text
    assert "same" not in text
    assert "x" * 100 not in text


def test_a_readers_words_cannot_steer_the_terminal():
    assert "\x1b[2J" not in shown(Result(case(), Answer("\x1b[2J", None, "\x1b]0;title\x07 [red]")))
    shown(Result(case(), Answer("\ud800")))


def test_what_a_reader_writes_to_stderr_is_printed_and_cannot_steer_the_terminal(capsys):
    words = "sys.stderr.write('\\x1b[2Jcleared\\n[link=http://192.0.2.1/]here'); sys.stderr.flush(); print('{}')"
    main(["--rule", "ENC-1", "--", *script(words)])
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\\x1b[2Jcleared\n[link=http://192.0.2.1/]here\n" in said


def test_a_reader_that_floods_stderr_is_silent_in_time():
    told = []
    flood = "while True: sys.stderr.write('x' * 10_000)"
    with Implementation(script(flood), hear=told.append, time_limit=1.0) as reader:
        assert reader.ask(REQUEST) == Fault(Wrong.SILENT, "no answer within 1 s")
    assert max(map(len, told)) == 4_000


def test_cases_are_chosen_by_rule_or_by_section():
    everything = load_cases()
    assert {each.rule for each in load_cases("ENC-1")} == {"ENC-1"}
    section = load_cases("ENC")
    assert {each.rule for each in section} > {"ENC-1", "ENC-10"}
    assert len(section) <= len(everything)


@pytest.mark.parametrize(
    ("body", "status"),
    [('print(\'{"verdict": "accept"}\', flush=True)', 1), ("print('garbage', flush=True)", 2)],
)
def test_the_exit_status_tells_a_reader_that_differs_from_a_command_that_is_none(body, status):
    assert main(["--rule", "ENC-1", "--", *script(body)]) == status


def test_a_command_that_is_not_there_is_one_line_and_status_2(capsys):
    assert main(["--json", "--", "/nowhere/[/reader]"]) == 2
    assert (
        capsys.readouterr().err.strip()
        == "error: cannot start the command '/nowhere/[/reader]': No such file or directory"
    )


def test_a_rule_that_does_not_exist_names_the_sections(capsys):
    assert main(["--rule", "NOT-1", "--", *ACCEPTING]) == 2
    assert "ENC" in capsys.readouterr().err


def test_the_json_report_is_one_object_on_standard_output(capsys):
    main(["--json", "--rule", "ENC-1", "--", *ACCEPTING])
    report = json.loads(capsys.readouterr().out)
    assert report["totals"]["cases"] == report["rules"]["ENC-1"]["cases"] > report["totals"]["agreed"] > 0
    assert all(each["got"] == {"verdict": "accept"} for each in report["disagreements"])
