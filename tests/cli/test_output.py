import json
import time

from wafer_jax.cli.output import Output
from wafer_jax.report.provenance import provenance


def test_only_what_takes_over_a_second_is_announced(capsys):
    out = Output(as_json=True)
    with out.progress("something short"):
        pass
    with out.progress("something long") as say:
        say("its second part")
        time.sleep(1.2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "something long ...\n")


def test_with_json_stdout_is_one_object(capsys):
    out = Output(as_json=True)
    out.section("title")
    out.show("words")
    out.text("more words")
    out.finish("info", provenance(), {"value": float("nan")})
    record = json.loads(capsys.readouterr().out)
    assert record["value"] is None
    origin = ["version", "preset", "preset_hash", "mesh", "seed", "level", "jax_version"]
    assert list(record) == ["command", *origin, "value"]


def test_texts_are_neither_wrapped_nor_read_as_markup(capsys):
    out = Output(as_json=False)
    out.text("[bold]" + "word " * 60)
    assert capsys.readouterr().out == "[bold]" + "word " * 60 + "\n"
