"""Score predicted answers: ``python -m benchmarks.score_squad DATA PREDICTIONS``.

DATA is in the layout of SQuAD v1.1 or v2.0 (also XQuAD, CMRC 2018, DRCD), PREDICTIONS a JSON
file of question id to text, either also compressed. Prints JSON.
"""

import sys

from configs.command_line import Parser, run, tell
from data.squad import scoring
from data.squad.questions import read_questions


def main(argv=None):
    """Score, print the result as JSON and return it."""
    arguments = _parser().parse_args(argv)
    questions = read_questions(arguments.data)
    rules = arguments.rules or scoring.guess_rules(questions)
    null_odds = arguments.null_odds and scoring.read_null_odds(arguments.null_odds)
    result = {"data": arguments.data, "predictions": arguments.predictions, "rules": rules,
              **scoring.score(questions, scoring.read_predictions(arguments.predictions), rules,
                              null_odds)}
    tell(result, arguments.output)
    return result


def _parser():
    parser = Parser(prog="python -m benchmarks.score_squad", description=__doc__)
    parser.add_argument("data", metavar="DATA", help="questions with their answers")
    parser.add_argument("predictions", metavar="PREDICTIONS", help="JSON of id to text")
    parser.add_argument("--rules", choices=scoring.RULES,
                        help="default: cmrc2018 for Chinese questions, else squad")
    parser.add_argument("--null-odds", metavar="FILE", help="JSON of id to the odds that there is "
                        "no answer: adds the best thresholds")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there too")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
