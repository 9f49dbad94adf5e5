"""Generates short documents with questions whose answers are spans of the document, from a small grammar.

    Anna found a lamp on the bridge, and Paul found a lamp in the park.  Where did Paul find the lamp?  ->  in the park

The people of a document do similar things at different places and times, so a model must combine who did what, where
and when. A person may be referred to by a job or a pronoun. Each question has exactly one answer, and the document has
at least one other place, time, person ... of the same kind.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from regard.modalities.synthetic.adventure.scenery import capitalize, with_article
from regard.modalities.synthetic.distinct import split_by_hash

HE, SHE = ("he", "his"), ("she", "her")
PEOPLE = dict.fromkeys(("Anna", "Clara", "Emma", "Grace", "Ida", "Kate", "Mia", "Olga", "Rosa"), SHE)
PEOPLE |= dict.fromkeys(("Ben", "David", "Felix", "Henry", "Jonas", "Leo", "Noah", "Paul", "Sam"), HE)
JOBS = ("baker", "doctor", "farmer", "gardener", "painter", "pilot", "sailor", "singer", "tailor", "teacher")
VERBS = {
    **{"buy": "bought", "find": "found", "lose": "lost", "sell": "sold", "hide": "hid", "borrow": "borrowed"},
    **{"paint": "painted", "repair": "repaired", "draw": "drew", "forget": "forgot", "see": "saw"},
}
NOUNS = ("lamp", "kite", "clock", "chair", "drum", "umbrella", "mirror", "basket", "violin", "hat", "carpet", "vase")
ADJECTIVES = ("red", "blue", "green", "old", "new", "small", "large", "ugly", "pretty")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES = (
    *("at the market", "in the garden", "at the station", "near the lake", "on the bridge", "behind the church"),
    *("in the kitchen", "in the park", "on the beach", "at the harbour", "in the attic", "under the old oak"),
    *("in the museum", "at the airport"),
)
TIMES = (
    *("on Monday", "on Tuesday", "on Wednesday", "on Thursday", "on Friday", "on Saturday", "on Sunday"),
    *("in the morning", "in the evening", "at noon", "at midnight", "after lunch", "before breakfast"),
)
REASONS = (
    *("because {his} sister needed help", "because it was {his} birthday", "because {he} had lost a bet"),
    *("because {his} neighbour had asked for it", "because {his} old aunt was ill", "because the rain had stopped"),
    *("because {he} could not sleep", "because {he} needed money for a journey", "because {his} train was late"),
    *("because {he} wanted to surprise {his} mother", "because {he} was bored", "because guests were coming"),
)
FILLERS = (
    *("It was a warm week in May.", "Everybody in the village was busy.", "Nobody noticed the fox behind the hedge."),
    *("The market was full of people.", "The church bells rang all day.", "A cold wind blew from the lake."),
    *("There was a lot to do.", "The trains were late again."),
)
ORDERS = (  # of the parts of a sentence
    *(("who", "verb", "what", "where", "when", "why"), ("who", "verb", "what", "when", "where", "why")),
    *(("when", "who", "verb", "what", "where", "why"), ("where", "who", "verb", "what", "when", "why")),
)
KINDS = {  # kinds of questions: the parts of the event that they mention, and those that they may mention
    "who": (("verb", "noun"), ("amount", "where", "when")),
    "where": (("who", "verb", "noun"), ("amount", "when")),
    "when": (("who", "verb", "noun"), ("amount", "where")),
    "what": (("who", "verb"), ("where", "when")),
    "how many": (("who", "verb", "noun"), ("where", "when")),
    "why": (("who", "verb", "noun"), ("amount", "where", "when")),
}
MIN_WORDS, MAX_WORDS = 40, 90  # words of a document
SENTENCE_COUNTS = range(4, 10)
QUESTIONS_PER_DOCUMENT = 3  # at most


class QuizItem(NamedTuple):
    question: str
    document: str
    answer: str
    start: int  # document[start : start + len(answer)] == answer


class Event(NamedTuple):
    who: str
    verb: str
    noun: str
    amount: str  # a number, or an adjective for a single thing
    where: str
    when: str
    why: str

    @property
    def what(self) -> str:
        return f"{self.amount} {self.noun}s" if self.amount in NUMBERS else f"{with_article(self.amount)} {self.noun}"


class DocumentBuilder:
    """A document under construction, with the span of each part of each event."""

    def __init__(self) -> None:
        self.text = ""
        self.spans: dict[tuple[Event, str], tuple[int, int]] = {}

    def add(self, part: str, *marks: tuple[Event, str]) -> None:
        """Appends words; the first of a sentence is capitalised."""
        if not self.text or self.text[-1] == ".":
            part = capitalize(part)
        self.text += ("" if not self.text or part in ",." else " ") + part
        for mark in marks:
            self.spans[mark] = (len(self.text) - len(part), len(self.text))


def quiz(count: int = 12_000, seed: int = 0) -> list[QuizItem]:
    """`count` different questions, grouped by document; the same seed gives the same questions."""
    rng = random.Random(seed)
    distinct: dict[tuple[str, str], QuizItem] = {}
    while len(distinct) < count:
        for question in draw_items(rng):
            distinct[question.question, question.document] = question
    return list(distinct.values())[:count]


def split(question: QuizItem) -> str:
    """'train', 'valid' or 'test', by a hash of the document: all of its questions are in one set."""
    return split_by_hash(question.document, 3)


def draw_items(rng: random.Random) -> Iterator[QuizItem]:
    """Questions of different kinds about a new document; none if it is too short or too long."""
    names = rng.sample(list(PEOPLE), rng.choice((2, 3)))
    jobs = dict(zip(names, rng.sample(JOBS, len(names)), strict=True)) if rng.random() < 0.5 else {}
    all_events = draw_events(names, rng)
    document = write_document(all_events, jobs, rng)
    if document.text.count(".") not in SENTENCE_COUNTS or not MIN_WORDS <= len(document.text.split()) <= MAX_WORDS:
        return
    count = 0
    for kind in rng.sample(list(KINDS), len(KINDS)):
        answers = {event: document.text[slice(*span)] for (event, part), span in document.spans.items() if part == kind}
        if count < QUESTIONS_PER_DOCUMENT and len({answer.lower() for answer in answers.values()}) > 1:
            event = rng.choice(list(answers))
            if words := write_question(kind, event, all_events, jobs, rng):
                yield QuizItem(words, document.text, answers[event], document.spans[event, kind][0])
                count += 1


def draw_events(names: list[str], rng: random.Random) -> list[Event]:
    """Events that share a few places and times; two of them also share verb and noun."""
    places, times, reasons = rng.sample(PLACES, 3), rng.sample(TIMES, 3), rng.sample(REASONS, 6)
    verbs, nouns = rng.sample(list(VERBS), 2), rng.sample(NOUNS, 3)

    def draw_event(who: str, verb: str, noun: str) -> Event:
        amount = rng.choice((rng.choice(NUMBERS), rng.choice(ADJECTIVES)))
        he, his = PEOPLE[who]
        why = reasons.pop().format(he=he, his=his) if rng.random() < 0.4 else ""
        where, when = (rng.choice(choices) if rng.random() < 0.85 else "" for choices in (places, times))
        return Event(who, verb, noun, amount, where, when, why)

    first = draw_event(names[0], verbs[0], nouns[0])
    second = draw_event(names[1], verbs[0], nouns[0])
    if rng.random() < 0.4:
        second = second._replace(amount=first.amount)
    count = rng.choice((2, 3, 3, 4))
    further = [draw_event(rng.choice(names), rng.choice(verbs), rng.choice(nouns)) for _ in range(count)]
    return rng.sample([first, second, *further], 2 + len(further))


def write_document(all_events: list[Event], jobs: dict[str, str], rng: random.Random) -> DocumentBuilder:
    """The events as sentences. A pronoun refers to the subject of the previous sentence."""
    document = DocumentBuilder()
    if jobs:
        *rest, last = (f"{name} is {with_article(job)}" for name, job in jobs.items())
        document.add(f"{', '.join(rest)} and {last}.")
    previous: Event | None = None
    remaining = list(all_events)
    while remaining:
        if rng.random() < 0.25:
            document.add(rng.choice([filler for filler in FILLERS if filler not in document.text]))
            previous = None
        event = remaining.pop(0)
        separate_reason = bool(event.why) and rng.random() < 0.5
        add_clause(document, event, rng.choice(ORDERS)[: -1 if separate_reason else None], jobs, previous, rng)
        previous = event
        if remaining and remaining[0].who != event.who and not event.why and rng.random() < 0.4:
            document.add(",")
            document.add(rng.choice(("and", "but", "while")))
            add_clause(document, remaining.pop(0), ORDERS[0], jobs, None, rng)
            previous = None
        if separate_reason:
            document.add(".")
            document.add(f"{PEOPLE[event.who][0]} did so")
            document.add(event.why, (event, "why"))
        document.add(".")
    return document


def add_clause(
    document: DocumentBuilder,
    event: Event,
    order: tuple[str, ...],
    jobs: dict[str, str],
    previous: Event | None,
    rng: random.Random,
) -> None:
    words = {"verb": VERBS[event.verb], "what": event.what, "where": event.where, "when": event.when, "why": event.why}
    if previous and previous.who == event.who and rng.random() < 0.8:
        words["who"] = PEOPLE[event.who][0]
        if (previous, "who") in document.spans:
            document.spans[event, "who"] = document.spans[previous, "who"]
    else:
        words["who"] = f"the {jobs[event.who]}" if jobs and rng.random() < 0.3 else event.who
    parts = [part for part in order if words[part]]
    for part in parts:
        document.add(words[part], *([(event, part)] if part != "who" or words[part] == event.who else []))
        if part == "what" and event.amount in NUMBERS:
            start, _ = document.spans[event, "what"]
            document.spans[event, "how many"] = (start, start + len(event.amount))
        if part == parts[0] and part in ("when", "where"):
            document.add(",")


def write_question(kind: str, event: Event, all_events: list[Event], jobs: dict[str, str], rng: random.Random) -> str:
    """A question that only this event answers; "" if there is none."""
    required, optional = KINDS[kind]
    available = [part for part in rng.sample(optional, len(optional)) if getattr(event, part)]
    subsets = [available[:count] for count in range(len(available) + 1)]
    sufficient = [details for details in subsets if is_unique(event, all_events, (*required, *details))]
    if not sufficient:
        return ""
    details = rng.choice((sufficient[0], sufficient[0], sufficient[-1]))
    who = f"the {jobs[event.who]}" if jobs and rng.random() < 0.3 else event.who
    what = event.what if "amount" in details else f"the {event.noun}{'s' if event.amount in NUMBERS else ''}"
    words = {
        "who": f"who {VERBS[event.verb]} {what}",
        "what": f"what did {who} {event.verb}",
        "how many": f"how many {event.noun}s did {who} {event.verb}",
    }.get(kind, f"{kind} did {who} {event.verb} {what}")
    words = " ".join([words, *(getattr(event, part) for part in ("where", "when") if part in details)])
    return f"{capitalize(words)}?"


def is_unique(event: Event, all_events: list[Event], details: tuple[str, ...]) -> bool:
    matches = [all(getattr(other, part) == getattr(event, part) for part in details) for other in all_events]
    return sum(matches) == 1
