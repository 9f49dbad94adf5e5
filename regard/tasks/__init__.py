"""The tasks by name: translate, write, fill, classify, regress, tag, answer, embed, match, predict, decide."""

from __future__ import annotations

from regard.tasks.answer import QuestionAnswering
from regard.tasks.classify import Classify
from regard.tasks.decide import Decide
from regard.tasks.embed import Embed
from regard.tasks.fill import Fill
from regard.tasks.match import Match
from regard.tasks.predict import Forecast
from regard.tasks.regress import Regress
from regard.tasks.tag import Tag
from regard.tasks.task import Task
from regard.tasks.translate import Translate
from regard.tasks.write import Write

TASKS: dict[str, type[Task]] = {
    "translate": Translate,
    "write": Write,
    "fill": Fill,
    "classify": Classify,
    "regress": Regress,
    "tag": Tag,
    "answer": QuestionAnswering,
    "embed": Embed,
    "match": Match,
    "predict": Forecast,
    "decide": Decide,
}
