"""What a model is for."""

from __future__ import annotations

from regard.tasks.answer import Answering
from regard.tasks.classify import Classify
from regard.tasks.decide import Decide
from regard.tasks.embed import Embed
from regard.tasks.fill import Fill
from regard.tasks.match import Match
from regard.tasks.predict import Predict
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
    "answer": Answering,
    "embed": Embed,
    "match": Match,
    "predict": Predict,
    "decide": Decide,
}
