#!/usr/bin/env python3
"""Ask a model: JSON lines out, one for each input, in the order of the input.

An input is --text, a line of --input, or a line of standard input. A model is a folder of
export_model.py, or a checkpoint, which is run as it is, more slowly.
"""

import argparse
import json
import os
import sys
from contextlib import closing, redirect_stdout

from configs.command_line import Parser, run
from configs.errors import InputError
from configs.inference_schema import describe_inference, load_inference
from engines import startup

COMMANDS = {
    "fill-mask": "guess the words behind [MASK]: tokens, probabilities",
    "answer": "answer questions on a text, JSON {question, context} a line: answer, score, "
              "start, end",
    "classify": "label texts, pairs as JSON {text, pair} a line, or words: label(s), "
                "probabilities",
    "embed": "turn texts into unit vectors: embedding",
    "encode": "turn texts, or pairs, into a vector for each token: tokens, hidden_states",
}


def main(argv=None):
    """Answer as the command line asks; return the answers to --text, else counts of lines."""
    arguments = _parser().parse_args(argv)
    settings = load_inference(arguments.config, arguments.overrides)
    with redirect_stdout(sys.stderr):  # standard output is for answers alone
        startup.prepare(settings.threads, settings.on_ipus)
    if arguments.dry_run:
        return check(arguments, settings)
    return arguments.command(arguments, settings)


def check(arguments, settings):
    """Tell whether IPUs take the model with these settings; return the operators of its Program."""
    from inference.exported import read_exported

    if not settings.on_ipus:
        raise InputError("--dry-run", "tells whether IPUs take a model, but inference.device is "
                         f"{settings.device}", "add --set device=ipu, or leave it out")
    from inference.ipu import check_folder

    loaded, options = check_folder(arguments.model, settings,
                                   read_exported(arguments.model)[0].shape)
    operators = loaded.program.global_block().ops
    print(f"contract: {len(operators)} operators and {len(options)} options are such as Paddle's "
          f"IPU backend takes: {options['num_ipus']} IPUs, {settings.fixed_rows} rows of "
          f"{settings.fixed_length} slots a call")
    return operators


def ask(arguments, settings):
    """Answer --text, --input or standard input."""
    record = _record(arguments)
    with closing(_open_predictor(arguments, settings, many=record is None)) as predictor:
        if record is None:
            return _answer_stream(predictor, arguments)
        return _answer_one(predictor, arguments, record)


def _open_predictor(arguments, settings, many):
    from inference.exported import is_exported
    from inference.predictor import open_predictor
    from inference.processes import settings_for_many

    options = {"count": arguments.count} if arguments.name == "fill-mask" else {}
    if arguments.name == "answer":
        options["may_have_no_answer"] = arguments.may_have_no_answer
    if many and is_exported(arguments.model):
        settings = settings_for_many(settings)
    with redirect_stdout(sys.stderr):
        return open_predictor(arguments.model, arguments.name.replace("-", "_"), settings, options)


def _answer_one(predictor, arguments, record):
    from inference.stream import to_json

    refusal = predictor.read(record)
    if isinstance(refusal, InputError):
        raise InputError(f"--{refusal.place}", refusal.problem, refusal.mend)
    answer, = predictor.answers([record])
    if arguments.name in _PRINTERS and not arguments.json:
        _PRINTERS[arguments.name](record, answer)
    else:
        print(to_json(answer))
    return answer


def classify(arguments, settings):
    """Label --text or the lines of a stream; with a checkpoint, the rows of a table too."""
    from inference.exported import is_exported

    record, is_checkpoint = _record(arguments), not is_exported(arguments.model)
    is_table = is_checkpoint and arguments.input
    given = [name for name in (*_TABLE_OPTIONS, "output") if getattr(arguments, name)]
    if given and not is_table:
        raise InputError(f"--{given[0].replace('_', '-')}", "is for the table that a checkpoint "
                         "reads from --input", "leave it out")
    if is_table and arguments.jsonl:
        raise InputError("--jsonl", "is for lines, but a checkpoint reads a table",
                         "write --format jsonl")
    if is_table or is_checkpoint and record:
        return classify_table(arguments)
    return ask(arguments, settings)


def classify_table(arguments):
    """Print and return what a checkpoint tells of ``--text``, or of each row of ``--input``."""
    from configs.files import write_whole
    from inference.classify import Classifier

    with redirect_stdout(sys.stderr):
        classifier = Classifier(arguments.model)
    if arguments.text is not None:
        answer = classifier.classify_text(arguments.text, arguments.pair)
        print(json.dumps(answer, ensure_ascii=False))
        return answer
    options = {name: getattr(arguments, name) for name in _TABLE_OPTIONS
               if getattr(arguments, name)}
    if "columns" in options:
        options["columns"] = options["columns"].split(",")
    answers = classifier.classify_file(arguments.input, **options)
    lines = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    if arguments.output:
        write_whole(arguments.output, lines)
    else:
        print(lines, end="")
    return answers


def serve(arguments, settings):
    """Answer over HTTP until SIGTERM or Ctrl-C."""
    from inference.server import Limits, serve as serve_forever

    limits = Limits(arguments.queue, arguments.timeout, arguments.largest_body,
                    arguments.most_records)
    serve_forever(arguments.model, settings, arguments.host, arguments.port, limits)


def _record(arguments):
    """What the options ask for one input, None if it is a stream."""
    if arguments.input and arguments.text is not None:
        raise InputError("--input", "--text is given too", "give one of them")
    if arguments.name == "answer":
        return _question(arguments)
    pair = getattr(arguments, "pair", None)
    if arguments.text is None:
        if pair is not None:
            raise InputError("--pair", "is the second text, but --text is missing", "give both")
        return None
    return {"text": arguments.text, **({"pair": pair} if pair is not None else {})}


def _question(arguments):
    """The record of ``--question`` and its text; None for a stream of records."""
    context = _context(arguments)
    if arguments.question is None and context is None:
        return None
    if context is None:
        raise InputError("--context", "is missing", "name the file that --question is about, or "
                         "give --text")
    if arguments.question is None:
        raise InputError("--question", "is missing", "ask something about the text")
    return {"question": arguments.question, "context": context}


def _context(arguments):
    """The text that ``--question`` is about, of ``--text`` or of the file ``--context``."""
    if arguments.context is None:
        return arguments.text
    if arguments.text is not None or arguments.input:
        raise InputError("--context", f"--{'input' if arguments.input else 'text'} is given too",
                         "give one of them")
    try:
        with open(arguments.context, encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except OSError as error:
        raise InputError(arguments.context, f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(arguments.context, f"byte {error.start} is not UTF-8",
                         "convert it to UTF-8") from None


def _answer_stream(predictor, arguments):
    from inference.stream import answer_lines, read_lines

    is_json = arguments.name == "answer" or arguments.jsonl or (
        (arguments.input or "").endswith((".jsonl", ".json")))
    try:
        stream = open(arguments.input, "rb") if arguments.input else sys.stdin.buffer
    except OSError as error:
        raise InputError(arguments.input, f"cannot be read ({error.strerror})") from None
    total = os.path.getsize(arguments.input) if arguments.input else None
    try:
        with stream:
            answered, refused = answer_lines(predictor, read_lines(stream), sys.stdout, is_json,
                                             total)
    except BrokenPipeError:  # e.g. into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None
    latency = ", ".join(f"{name} {value:.1f}" for name, value in predictor.latency().items())
    print(f"{answered:,} lines, {refused:,} refused; {predictor.padding():.1%} of the computed "
          f"slots were padding; milliseconds a batch: {latency or 'none'}", file=sys.stderr)
    if refused:
        raise InputError(arguments.input or "standard input", f"{refused:,} of {answered:,} lines "
                         "were refused", 'their answers hold "error"')
    return answered, refused


def _print_words(record, answer):
    print(record["text"])
    for number, (tokens, shares) in enumerate(zip(answer["tokens"], answer["probabilities"]), 1):
        print(f"[MASK] {number}")
        for token, share in zip(tokens, shares):
            print(f"  {share:8.4f}  {token}")


def _print_answer(record, answer):
    """The text with its answer marked."""
    if not answer["answer"]:
        print("no answer")
        return
    context, start, end = record["context"], answer["start"], answer["end"]
    print(f"{context[:start]}**{context[start:end]}**{context[end:]}")
    print(f"  {answer['score']:8.4f}  {answer['answer']}")


_TABLE_OPTIONS = ("text_column", "pair_column", "columns", "format", "quoting")
_PRINTERS = {"fill-mask": _print_words, "answer": _print_answer}


def _parser():
    parser = Parser(description=__doc__, epilog="keys of --config and --set:\n"
                    + describe_inference())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, meaning in COMMANDS.items():
        command = _add_command(commands, name, meaning, ask)
        command.add_argument("--text", help="one input" if name != "answer" else "its context")
        command.add_argument("--input", metavar="FILE", help="one input a line; .jsonl: records")
        command.add_argument("--jsonl", action="store_true",
                             help="lines of --input or standard input are JSON records")
        if name in _ADD_OPTIONS:
            _ADD_OPTIONS[name](command)
    _add_serve(commands)
    return parser


def _add_command(commands, name, meaning, function):
    command = commands.add_parser(name, help=meaning, description=meaning)
    command.set_defaults(command=function, name=name)
    command.add_argument("--model", "--checkpoint", required=True, metavar="DIR",
                         help="folder of export_model.py, or a checkpoint")
    command.add_argument("--config", metavar="FILE",
                         help="settings in YAML, e.g. configs/inference/cpu.yaml")
    command.add_argument("--set", metavar="KEY=VALUE", action="append", default=[],
                         dest="overrides", help="override one, e.g. threads=4; repeatable")
    command.add_argument("--dry-run", action="store_true",
                         help="tell whether IPUs take the model with these settings, and leave")
    return command


def _add_fill_mask(command):
    command.add_argument("--count", type=_positive, default=5,
                         help="words for each mask (default 5)")
    command.add_argument("--json", action="store_true", help="JSON for --text too")


def _add_answer(command):
    command.add_argument("--question", help="about --text or --context")
    command.add_argument("--context", metavar="FILE", help="that holds the text of --question")
    command.add_argument("--json", action="store_true", help="JSON for --question too")
    command.add_argument("--may-have-no-answer", action="store_true",
                         help="let \"\" be an answer, as in SQuAD v2.0")


def _add_classify(command):
    command.set_defaults(command=classify)
    command.add_argument("--pair", metavar="TEXT", help="second text of a pair")
    tables = command.add_argument_group("a checkpoint reads --input as a table")
    tables.add_argument("--text-column", help="of --input (default text)")
    tables.add_argument("--pair-column", help="of --input, for pairs")
    tables.add_argument("--columns", metavar="NAME,NAME",
                        help="of an --input without a line of names")
    tables.add_argument("--format", help="of --input, as data.format (default auto)",
                        choices=["auto", "tsv", "csv", "jsonl", "spaces", "conll"])
    tables.add_argument("--quoting", help="of --input, as data.quoting (default auto)",
                        choices=["auto", "quoted", "plain"])
    tables.add_argument("--output", metavar="FILE", help="JSON lines instead of printing them")


def _add_encode(command):
    command.add_argument("--pair", metavar="TEXT", help="second text of a pair")


_ADD_OPTIONS = {"fill-mask": _add_fill_mask, "answer": _add_answer, "classify": _add_classify,
                "encode": _add_encode}


def _add_serve(commands):
    command = _add_command(commands, "serve", "answer over HTTP, from an exported folder", serve)
    command.add_argument("--host", default="127.0.0.1", help="address (default 127.0.0.1)")
    command.add_argument("--port", type=_port, default=8000, help="0 takes a free one")
    command.add_argument("--queue", type=_positive, default=512,
                         help="records that may wait; above, 503 (default 512)")
    command.add_argument("--timeout", type=_seconds, default=30.0, help="of a request "
                         "(default 30)", metavar="SECONDS")
    command.add_argument("--largest-body", type=_positive, default=1 << 20, metavar="BYTES")
    command.add_argument("--most-records", type=_positive, default=128, help="of one request")


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def _port(text):
    number = int(text)
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not 0 to 65535")
    return number


def _seconds(text):
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not positive, or endless")
    return number


if __name__ == "__main__":
    sys.exit(run(main))
